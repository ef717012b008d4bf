"""Older, newer and rarer forms of lines, one by one: which framework, which step, and some of what is on it."""

from __future__ import annotations

import pytest

from lens_core.detection.log_lines import Context, LineEngine
from tests.lens_core.detection.log_lines.stand import says_something

STEPS = [
    (
        "2020-11-05 17:03:13 | INFO | train_inner | epoch 001:     20 / 3715 loss=13.8, nll_loss=13.7, wps=27000.4,"
        " num_updates=20, lr=2.6e-06, gnorm=3.1, loss_scale=128",
        "fairseq",
        20,
        {"lm_loss": 13.8, "grad_norm": 3.1, "steps_per_epoch": 3715},
    ),
    (
        "| epoch 001 1000 / 1311 loss=7.63 (9.02), wps=5012, lr=0.25",
        "fairseq",
        None,
        {"lm_loss": 7.63, "lm_loss_avg": 9.02},
    ),
    (
        '| INFO | train | {"epoch": 1, "train_loss": "10.2", "train_num_updates": "100", "train_lr": "0.001"}',
        "fairseq",
        100,
        {"lm_loss": 10.2, "learning_rate": 0.001},
    ),
    (
        "[default7]: iteration  1600/  114230 | consumed tokens: 6710886400 | elapsed time per iteration (s): 105.22 |"
        " lm loss: 2.6E+00 | samples per second: 19.464 | TFLOPs: 149.02 |",
        "megatron_deepspeed",
        1600,
        {"elapsed_time_per_iteration_ms": 105220.0, "tflops": 149.02},
    ),
    (
        " samples/sec: 12.1 | iteration      340/   10000 | elapsed time per iteration (ms): 4103.1 |"
        " approx flops per GPU: 112.9TFLOPS | MFU: 36.10% | lm_loss: 1.11E+01 |",
        "gpt_neox",
        340,
        {"samples_per_second": 12.1, "tflops": 112.9, "mfu": 36.1},
    ),
    (
        "[timer.py:197:stop] 0/20, RunningAvgSamplesPerSec=5.1, CurrSamplesPerSec=5.3, MemAllocated=3.9GB",
        "deepspeed",
        None,
        {"samples_per_second": 5.3, "samples_per_second_avg": 5.1, "mem_usage": 3.9},
    ),
    (
        "Epoch: 0 | Step: 12 | PPO Epoch: 1 | Actor Loss: 0.07 | Critic Loss: 0.1 | Unsupervised Loss: 0.0",
        "deepspeed",
        12,
        {"act_loss": 0.07, "cri_loss": 0.1},
    ),
    (
        "Training epoch 1, iteration 5/19 | lr: 1e-05 | global_step: 25 | max_memory_allocated: 53687091200 |"
        " reduced_train_loss: 1.03 | train_step_timing in s: 0.5 | val_loss: 2.1 | TFLOPS_per_GPU: 312.5",
        "nemo",
        25,
        {"mem_usage": 50.0, "elapsed_time_per_iteration_ms": 500.0, "tflops": 312.5, "val_loss": 2.1},
    ),
    (
        "Epoch 0:  12%|â–ˆâ–| 120/1000 [10:00<1:13:20,  5.00s/it, loss=10.9, v_num=0, reduced_train_loss=10.50,"
        " gradient_norm=1.2, global_step=119.0]",
        "nemo",
        119,
        {"lm_loss": 10.5, "loss": 10.9, "grad_norm": 1.2},
    ),
    (
        " [2026-01-10 15:00:00.123456] iteration  50/ 200 | energy per GPU (J/iter/GPU): 320.1 |"
        " decoupled learning rate: 1.0E-05 | mtp_1 loss: 2.2E+00 | lm loss: 1.25E+00 |",
        "megatron",
        50,
        {"lm_loss": 1.25, "mtp_1 loss": 2.2, "decoupled learning rate": 1e-5},
    ),
    (
        "iteration 12/ 50 | hip mem usage/free/total/usage_ratio: 99.07GB/92.92GB/191.98GB/51.60% |"
        " rocm mem usage/free/total/usage_ratio: 100.07GB/91.92GB/191.98GB/52.12% |"
        " rank-3 rocm max mem usage/usage_ratio: 101.3GB/52.8% | lm loss: 7.2E+00 |",
        "primus",
        12,
        {"mem_usage": 99.07, "mem_usage_ratio": 51.6, "max_mem_usage": 101.3},
    ),
    (
        "[rank0]:2024-04-01 10:00:00,123 - root - INFO - step:  1  loss: 10.9486  iter: 1.9532  data: 0.03  lr: 0.0002",
        "torchtitan",
        1,
        {"lm_loss": 10.9486, "learning_rate": 0.0002},
    ),
    (
        "- root - INFO - [32mstep: 14  [31mloss:  3.24405  [33mmemory:  9.46GiB(64.99%)  [34mtps: 7,282[39m",
        "torchtitan",
        14,
        {"lm_loss": 3.24405, "mem_usage": 9.46, "tokens_per_gpu": 7282},
    ),
    (
        "completed step: 5, seconds: 1.2, TFLOP/s/device: 100.1, loss: 8.1, lm_loss: 8.0, mtp_loss: 0.02",
        "maxtext",
        5,
        {"lm_loss": 8.0, "loss": 8.1, "mtp_loss": 0.02},
    ),
    ("[Rampup Batch Size Phase]: completed step: 5, seconds: 1.2, loss: 8.1", "maxtext", 5, {"lm_loss": 8.1}),
    (
        "[INFO|2025-03-26 08:17:49] llamafactory.train.callbacks:143 >> {'loss': 1.2, 'learning_rate': 1e-05}",
        "llama_factory",
        None,
        {"lm_loss": 1.2},
    ),
    (
        "(TaskRunner pid=123) step:34 - actor/pg_loss:np.float64(0.01) - actor/lr:np.float64(1e-06)"
        " - timing_s/step:55.1",
        "verl",
        34,
        {"learning_rate": 1e-6, "elapsed_time_per_iteration_ms": 55100.0, "actor/pg_loss": 0.01},
    ),
    (
        "Train step of epoch 0:   6%|| 1/17 [00:05<01:20, 5.05s/it, gpt_loss=2.01, lr=tensor(5.38e-07)]",
        "openrlhf",
        None,
        {"lm_loss": 2.01, "learning_rate": 5.38e-7},
    ),
    (
        "[Epoch 5 / Train]: 100%|███| 1/1 [00:00<00:00, loss=107, throughput=8.2 sample_per_sec, 7.6 Tflops]",
        "colossalai",
        None,
        {"lm_loss": 107, "samples_per_second": 8.2, "tflops": 7.6},
    ),
    (
        "2021-08-01 01:10:31,475 - mmseg - INFO - Iter [50/160000]\tlr: 9.997e-03, eta: 1 day, 5:26:11, time: 0.662,"
        " data_time: 0.006, memory: 8192, loss: 3.6",
        "mmengine",
        50,
        {"mem_usage": 8.0, "lm_loss": 3.6, "elapsed_time_per_iteration_ms": 662.0},
    ),
    (
        "   0/299  10.4G  0.1016  0.0711  0.0571  0.2299   128   640: 100%|███| 116/116 [01:00<00:00, 1.9it/s]",
        "ultralytics",
        None,
        {"mem_usage": 10.4},
    ),
    ("iter 0: loss 10.9886, time 40123.1ms, mfu -100.00%", "nanogpt", 0, {"lm_loss": 10.9886}),
    ("iter 2 step 1: loss 1.6600, iter time: 548.72ms (optimizer.step)", "litgpt", 1, {"lm_loss": 1.66}),
    (
        "Epoch 0/9 ━━━━━━━━━━ 938/938 0:00:05 • 0:00:00 178.31it/s v_num: 0.000 train_loss: 0.052",
        "lightning",
        None,
        {"lm_loss": 0.052, "step_in_epoch": 938},
    ),
    (
        "[03/09 18:44:12 d2.utils.events]:  eta: 1 day, 2:03:04  iter: 19  total_loss: 4.123  max_mem: 3456M",
        "",
        19,
        {"lm_loss": 4.123, "mem_usage": 3.375},
    ),
    ("Steps:  10%|█ | 100/1000 [01:00<09:00,  1.66it/s, lr=1e-5, step_loss=0.05]", "", 100, {"target_iteration": 1000}),
    (
        "1875/1875 [==========] - 5s 3ms/step - loss: 0.29 - accuracy: 0.91 - val_loss: 0.3",
        "keras",
        None,
        {"lm_loss": 0.29},
    ),
    (
        '{"log":"step:  4  loss:  7.6  memory: 66.91GiB(37.51%)  tps: 10,050\\n","stream":"stderr"}',
        "torchtitan",
        4,
        {"tokens_per_gpu": 10050},
    ),
]


@pytest.mark.parametrize(("line", "framework", "iteration", "values"), STEPS, ids=range(len(STEPS)))
def test_a_form_of_a_step(
    engine: LineEngine, line: str, framework: str, iteration: int | None, values: dict[str, float]
) -> None:
    (step,) = (reading for reading in engine.read_line(line, Context()) if reading.kind == "metric")
    assert (step.framework, step.iteration) == (framework, iteration)
    assert {name: step.values.get(name) for name in values} == pytest.approx(values)


HAPPENINGS = [
    ("(TaskRunner pid=1) Training Progress: 100%|██████████| 435/435 [9:12:01<00:00, 76.1s/it]", "training_ended"),
    ("I0811 21:54:55.5 1383 checkpointing.py:226] saved a checkpoint at step 100", "checkpoint_saved"),
    ("Saving checkpoint to 'out/step-00001000/lit_model.pth'", "checkpoint_saving"),
    ("  Continuing training from global step 500", "checkpoint_loaded"),
    ("Restored all states from the checkpoint at /ckpt/last.ckpt", "checkpoint_loaded"),
    ("The loss returned in `training_step` is nan or inf.", "loss_not_finite"),
    ("Loss is nan, stopping training", "loss_not_finite"),
    ("slurmstepd: error: Detected 1 oom_kill event in StepId=1.0. Some have been OOM Killed.", "out_of_memory"),
    ("RuntimeError: CUDA error: an illegal memory access was encountered", "training_failed"),
    ("Signal 9 (SIGKILL) received by PID 1234", "process_terminated"),
    ("Received Signals.SIGTERM death signal, shutting down workers", "process_terminated"),
    (
        "| INFO | fairseq.trainer | NOTE: gradient overflow detected, ignoring gradient, setting loss scale to: 64.0",
        "step_skipped",
    ),
    ("FloatingPointError: Minimum loss scale reached (0.0001). Your loss is probably exploding.", "training_failed"),
    ("| INFO | fairseq_cli.train | done training in 10.1 seconds", "training_ended"),
    ("[INFO] [fused_optimizer.py:362:_update_scale] Grad overflow on iteration 3", "step_skipped"),
    (
        "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.",
        "training_failed",
    ),
    ("[launch.py:347:main] Process 12345 exits with return code = 1", "training_failed"),
    ("[exiting program at iteration 100] datetime: 2024-01-01 00:00:00", "training_ended"),
    ("  successfully loaded checkpoint from /ckpt [ t 1/8, p 1/1 ] at iteration 5000", "checkpoint_loaded"),
    ("AssertionError: Rank 3: found NaN in local forward loss calculation. Device: 3", "loss_not_finite"),
    ("- root - INFO - Training starts at step 1.", "training_started"),
    ("- root - INFO - Saving a full checkpoint at last step, step 100.", "checkpoint_saving"),
    (
        "- root - INFO - Finished saving the checkpoint (or staging if async is enabled)in 1.25 seconds.",
        "checkpoint_saved",
    ),
    ("{'train_runtime': 100.1, 'train_samples_per_second': 3.1, 'train_loss': 1.2, 'epoch': 3.0}", "training_ended"),
    ("[INFO|trainer.py:2139] 2024-01-01 00:00:00,123 >>   Total optimization steps = 1,024", "config"),
    ("ERROR:tensorflow:Model diverged with loss = NaN.", "loss_not_finite"),
    ("RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 79.35 GiB total capacity)", "out_of_memory"),
    (
        "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE, Timeout(ms)=1800000)",
        "collective_timeout",
    ),
    ("slurmstepd: error: *** STEP 123.0 ON node01 CANCELLED AT 2024-01-01T00:00:00 ***", "process_terminated"),
    ("srun: error: node01: task 3: Exited with exit code 1", "training_failed"),
    ("/bin/bash: line 1:  1234 Killed                  python train.py", "process_terminated"),
    ("LOCAL_RANK: 0 - CUDA_VISIBLE_DEVICES: [0,1]", "training_started"),
]


@pytest.mark.parametrize(("line", "kind"), HAPPENINGS, ids=range(len(HAPPENINGS)))
def test_a_form_of_an_event(engine: LineEngine, line: str, kind: str) -> None:
    readings = engine.read_line(line, Context())
    assert [reading.log_event.type for reading in readings if reading.log_event is not None] == [kind]


NOTHING = [
    "2021-03-08 | INFO | valid | epoch 001 | valid on 'valid' subset | loss 8.1 | ppl 118.06 | num_updates 3715",
    "(min, max) time across ranks (ms):",
    "Evaluating iter 1/10",
    "  loading checkpoint from /ckpt at iteration 5000",
    "Completed eval step 9",
    "Completed eval after train step 4, loss=9.8, total_weights=75264.0",
    "completed profiler deactivation step: 7",
    "- root - INFO - validate step: 14  loss:  3.24405  memory:  9.46GiB(64.99%)  tps: 7,282",
    "(main_task pid=1) step:0 - val/test_score/openai/gsm8k:0.17",
    "Epoch 1: 100%|██████████| 10/10 [00:01<00:00,  8.1it/s, v_num=3, val_loss=0.61]",
    "Validation DataLoader 0:  50%|█████     | 5/10 [00:01<00:01,  4.51it/s, loss=0.5]",
    "Testing DataLoader 0: 100%|█| 5/5 [00:01<00:01,  4.51it/s, loss=0.5]",
    "step 3000: train loss 3.1, val loss 3.2",
    "    loss = self.forward(inputs, step=5)",
    "Namespace(lr=0.1, loss='ce', epochs=3, step=5)",
    "INFO: 10.0.0.1 - loss of connection at step 5, retrying in 3 s",
]


@pytest.mark.parametrize("line", NOTHING)
def test_a_form_of_nothing(engine: LineEngine, line: str) -> None:
    assert [reading.kind for reading in engine.read_line(line, Context()) if says_something(reading)] == []


def test_columns_go_by_the_header_above_them(engine: LineEngine) -> None:
    context = Context()
    engine.read_line("     Epoch   gpu_mem       box       obj       cls    labels  img_size", context)
    row = (
        "       1/299     10.4G    0.1016    0.0711    0.0571       128       640:   5%|▌| 6/116 [00:10<03:00, 1.6s/it]"
    )
    (step,) = engine.read_line(row, context)
    assert (step.values["obj_loss"], step.values["cls_loss"]) == (0.0711, 0.0571)
    engine.read_line("epoch,step,train_loss_step,val_loss", context)
    (step,) = engine.read_line("0,49,2.5,", context)
    assert (step.iteration, step.values["lm_loss"], step.framework) == (49, 2.5, "lightning")
    assert not engine.read_line("0,49,,1.25", context)
