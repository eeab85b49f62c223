"""Trains a model of letter pairs, in the form of a factory of fine-tunings.

The settings are a YAML file, and words such as `learning_rate=0.1` change it. The log is a trainer_log.jsonl with a
JSON document on each line.
"""

import json
import sys
import time
from datetime import timedelta
from pathlib import Path

import numpy as np
from omegaconf import OmegaConf

TEXTS = ["how much is it", "where is the door", "who is there", "what is the time", "is it far", "is it you"] * 6


def pairs_of(texts):
    codes = [np.array([ord(letter) - 32 for letter in text]) for text in texts]
    return np.concatenate([code[:-1] for code in codes]), np.concatenate([code[1:] for code in codes])


def loss_and_gradient(logits, texts):
    before, after = pairs_of(texts)
    scores = np.exp(logits[before])
    scores /= scores.sum(1, keepdims=True)
    loss = -np.log(scores[np.arange(len(after)), after]).mean()
    scores[np.arange(len(after)), after] -= 1
    gradient = np.zeros_like(logits)
    np.add.at(gradient, before, scores / len(after))
    return float(loss), gradient


def main():
    config = OmegaConf.merge(OmegaConf.load(Path(__file__).parent / "sft.yaml"), OmegaConf.from_cli(sys.argv[1:]))
    output, logits, began = Path(config.output_dir), np.zeros((96, 96)), time.time()
    output.mkdir(parents=True, exist_ok=True)
    train, held_out = TEXTS[:32], TEXTS[32:]
    per_epoch = len(train) // 4
    total = int(per_epoch * config.num_train_epochs)
    for step in range(1, total + 1):
        start = (step - 1) % per_epoch * 4
        loss, gradient = loss_and_gradient(logits, train[start : start + 4])
        rate = config.learning_rate * (1 - (step - 1) / total)
        logits -= rate * 10 * gradient
        time.sleep(0.01)  # as if the model were large
        logs = []
        if step % config.logging_steps == 0:
            logs.append({"loss": round(loss, 4), "lr": rate})
            print({"loss": round(loss, 4), "learning_rate": rate, "epoch": step / per_epoch}, flush=True)
        if step % config.eval_steps == 0:
            logs.append({"eval_loss": loss_and_gradient(logits, held_out)[0]})
        for log in logs:
            elapsed = time.time() - began
            progress = {"current_steps": step, "total_steps": total, **log, "epoch": round(step / per_epoch, 2)}
            progress["percentage"] = round(100 * step / total, 2)
            progress["elapsed_time"] = str(timedelta(seconds=int(elapsed)))
            progress["remaining_time"] = str(timedelta(seconds=int(elapsed * (total - step) / step)))
            with (output / "trainer_log.jsonl").open("a") as file:
                file.write(json.dumps(progress) + "\n")
    used = {"learning_rate": float(config.learning_rate), "num_train_epochs": float(config.num_train_epochs)}
    Path("used.json").write_text(json.dumps(used))


if __name__ == "__main__":
    main()
