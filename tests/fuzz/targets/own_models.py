"""Users' model files: odd Python, and odd things that `data()` and the others return.

The check runs them, so each is checked in a process of its own: a fork of one that has imported the framework.
"""

import os
import pickle
import random
import resource
import signal
import traceback
from pathlib import Path

from dlscale.base.errors import UsageError
from tests.fuzz.damage import damaged
from tests.fuzz.target import Target
from tests.models.own.conftest import TORCH

FILE = "mine.py"
CHILD_SECONDS = 40
RETURNED = "    return features, (features[:, 0] > 0).astype(int)"
FEATURES = (
    "np.zeros((200, 6))", "np.zeros((200, 6), object)", "np.zeros((0, 6))", "np.zeros((200, 0))", "np.zeros(200)",
    "np.float32(1)", "np.full((200, 6), np.nan)", "np.zeros((200, 6), 'U3')", "np.zeros((200, 6), 'M8[s]')",
    "np.ma.masked_all((200, 6))", "np.zeros((200, 6), complex)", "np.zeros((200, 6), bool)", "[[1] * 6] * 200",
    "[[1] * 6, [2]] * 100", "[None] * 200", "torch.zeros(200, 6)", "torch.zeros(200, 6, dtype=torch.bfloat16)",
    "torch.zeros(200, 6).to_sparse()", "torch.zeros(200, 6, requires_grad=True)", "torch.zeros(200, 6, device='meta')",
    "np.zeros((200, 6))[::-1]", "np.asfortranarray(np.zeros((200, 6)))", "np.zeros((200, 6), '>f8')", "range(200)",
    "np.zeros((200, 6), [('a', 'f4')])", "np.matrix(np.zeros((200, 6)))", "iter([[1] * 6])", "'text'", "b'x'", "{}",
    "{1, 2}", "None", "1e400", "10**400", "np.zeros((200, 6), np.float16)", "np.zeros((200, 6), np.longdouble)", "...",
    "torch.quantize_per_tensor(torch.zeros(200, 6), 0.1, 0, torch.qint8)", "memoryview(b'x' * 1200)", "lambda: 1",
    "torch.nn.Linear(6, 2)", "torch", "np", "type", "open", "np.zeros((1,) * 33)", "np.broadcast_to(0.0, (200, 6))",
)  # fmt: skip
LABELS = (
    "np.zeros(200, int)", "np.zeros(200)", "np.full(200, -1)", "np.full(200, 2**40)", "np.zeros((200, 2))",
    "np.zeros(199, int)", "np.zeros(200, bool)", "np.zeros(200, 'U1')", "torch.zeros(200, dtype=torch.long)",
    "torch.zeros(200)", "[0] * 200", "['a'] * 200", "None", "np.full(200, np.nan)", "np.zeros((200, 1), int)",
    "np.arange(200)", "np.zeros(200, np.uint64) + 2**63", "np.zeros(200, object)",
)  # fmt: skip
WAYS = (
    "return {0}, {1}", "return [{0}, {1}]", "return {0}", "return ({0},)", "return {0}, {0}, {1}", "yield {0}, {1}",
    "return {{'x': {0}, 'y': {1}}}", "return zip({0}, {1})", "return list(zip({0}, {1}))", "raise {0}", "return",
    "return torch.utils.data.TensorDataset({0}, {1})", "return [({0}, {1})] * 40", "yield from zip({0}, {1})",
    "return torch.utils.data.DataLoader({0})", "for _ in range(40): yield {0}, {1}", "return data", "return {0}, data",
)  # fmt: skip
NAMES = (
    "metrics",
    "lower_is_better",
    "clip_norm",
    "schedule",
    "num_samples",
    "local_batch",
    "global_batch",
    "loss",
)


def damage(folder: Path, choice: random.Random) -> None:
    """The file with other data, with an odd name of those that it may have, or with words of it damaged."""
    text = TORCH
    kind = choice.random()
    if kind < 0.6:
        way = choice.choice(WAYS).format(choice.choice(FEATURES), choice.choice(LABELS))
        text = text.replace(RETURNED, f"    {way}")
    elif kind < 0.75:
        text += f"\n{choice.choice(NAMES)} = {choice.choice(FEATURES + LABELS)}\n"
    content = text.encode()
    if kind > 0.75 or choice.random() < 0.2:
        content = damaged(content, choice)
    (folder / FILE).write_bytes(content)


def check(folder: Path) -> None:
    """What `dlscale run --workloads FILE` asks of it. Raises UsageError, also where the process ends by a signal."""
    import torch  # once; its threads start with the first operation

    from dlscale.benchmarks.rank.own_trial import try_step
    from dlscale.models.own.facts import read_facts
    from dlscale.models.own.model import FilePlace

    path = folder / FILE
    reader, writer = os.pipe()
    if not (child := os.fork()):
        answer: tuple[str, str] = ("", "")
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (CHILD_SECONDS, CHILD_SECONDS))
            os.dup2(os.open(os.devnull, os.O_RDWR), 1)
            torch.set_num_threads(1)
            try_step(read_facts(path), FilePlace(path, path.absolute()))
        except UsageError as error:
            answer = ("refused", str(error))
        except BaseException:
            answer = ("fault", traceback.format_exc()[-2000:])
        os.write(writer, pickle.dumps(answer))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        said = stream.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL):
        raise AssertionError(f"not checked after {CHILD_SECONDS} s")
    if status:
        raise UsageError(f"ended by {status}")
    kind, text = pickle.loads(said)  # noqa: S301 - of our own child
    if kind == "refused":
        raise UsageError(text)
    if kind == "fault":
        raise AssertionError(text)


TARGETS: dict[str, Target] = {
    "own model": Target(
        make=lambda folder: (folder / FILE).write_text(TORCH),
        read=check,
        damage=damage,
        share=0.25,
        seconds=60.0,
    )
}
