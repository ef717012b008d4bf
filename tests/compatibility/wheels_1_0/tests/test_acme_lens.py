"""The detector against the lines that Acme Trainer prints."""

from __future__ import annotations

from acme_lens import Acme

from lens_core.testing import check_detector, detections, evidence, read_line


def test_the_detector_keeps_the_contract() -> None:
    check_detector(Acme)


def test_a_step_is_read() -> None:
    (reading,) = read_line(Acme, "[acme] step 10/500 | loss: 2.31 | lr: 1e-4 | grad_norm: 0.8")
    assert reading.framework == "acme"
    assert reading.iteration == 10
    assert reading.values == {"target_iteration": 500, "lm_loss": 2.31, "learning_rate": 1e-4, "grad_norm": 0.8}


def test_a_checkpoint_is_an_event() -> None:
    (reading,) = read_line(Acme, "[acme] checkpoint written to /ckpt/10")
    assert reading.happening is not None
    assert reading.happening.type == "checkpoint_saved"
    assert reading.happening.details == {"path": "/ckpt/10"}


def test_a_loaded_module_shows_the_framework() -> None:
    (found,) = detections(Acme, evidence(modules={"acme_trainer": "2.0"}))
    assert (found.framework, found.layer, found.confidence) == ("acme", "wrapper", 0.9)
