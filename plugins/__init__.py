"""The plugins that come with Lens; installed as the package `lens_plugins`."""
