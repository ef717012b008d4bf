"""The parts of the configuration: text to tree, tree to settings, and the messages. `lens_core.config` is the door."""
