"""Bytes that devices exchange in a training step, over the links of an instance and over the network.

An all-gather or a reduce-scatter of B bytes over a ring of n devices sends (n - 1) / n x B through every link, an
all-reduce twice that (Patarasuk and Yuan, J. Parallel Distrib. Comput. 69, 2009). With P weights, T of them trained,
and g bytes of a gathered weight or a sharded gradient, 2 in half precision and else 4:

    ddp, smddp   once a step: all-reduce of 4 T
    deepspeed    (ZeRO 2) in every micro-batch: reduce-scatter of g T; once a step: all-gather of g T
    fsdp, smp    in every micro-batch: all-gather of g P, frozen weights too, for the forward pass and again for the
                 backward pass, and reduce-scatter of 4 T; where copies of the shards remain, all-reduce of 4 T
                 between the copies
    zero 3       the same without copies, with a reduce-scatter of g T

Where t devices share the matrices of every layer, and s stages its layers, each has 1 / (t s) of P and T, and t such
rings share the connection of an instance. They also send each other activations, A bytes for one layer, for which the
next product has to wait:

    tensor       in every layer two all-reduces of A forward and two backward (Shoeybi et al., arXiv 1909.08053, section
                 3), and two more where the forward pass is made again
    pipeline     between neighbouring stages A forward and A backward; its shards are gathered once, and kept from the
                 forward to the backward pass
"""

import math
from dataclasses import dataclass

from paretune.specification.parallelism import SHARDED, ZERO3, ParallelDegrees


@dataclass(frozen=True, kw_only=True)
class Volume:
    """Bytes through one link between devices of an instance, and through the network connection of one instance."""

    link: float = 0.0
    network: float = 0.0

    def __add__(self, other: "Volume") -> "Volume":
        return Volume(link=self.link + other.link, network=self.network + other.network)

    def __rmul__(self, factor: float) -> "Volume":
        return Volume(link=factor * self.link, network=factor * self.network)


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """Volumes of one optimiser step: of each of its micro-batches, and once at its end.

    `blocking` is in every micro-batch, too. Arithmetic waits for it and overlaps with the others.
    """

    micro_batch: Volume = Volume()
    step: Volume = Volume()
    blocking: Volume = Volume()


def exchange_of(
    strategy: str,
    degrees: ParallelDegrees,
    *,
    half: bool,
    trained: float,
    parameters: float,
    layers: int = 0,
    activations: float = 0.0,
    recomputes: bool = False,
) -> Exchange:
    """Return the exchange of devices with these parallel degrees.

    `half` is whether weights are multiplied in bf16 or fp16; `trained` and `parameters` are numbers of weights;
    `activations` is the count of numbers that one layer passes to the next in a micro-batch: rows x tokens x hidden
    size.
    """
    tensor, stages, each = degrees.tensor, degrees.pipeline, degrees.per_instance
    of_stage = degrees.devices // stages
    instances, devices = math.ceil(of_stage / each), max(1, min(each, of_stage) // tensor)
    short = 2.0 if half else 4.0
    trained, parameters = trained / (tensor * stages), parameters / (tensor * stages)
    everywhere = _ring(instances * devices, devices)
    micro_batch, step = Volume(), Volume()
    if strategy == "deepspeed":
        micro_batch = step = short * trained * everywhere
    elif strategy not in SHARDED:
        step = 8.0 * trained * everywhere
    else:
        gathers = 1 if stages > 1 else 2  # a pipeline keeps what it has gathered for the backward pass
        scattered = (short if strategy == ZERO3 else 4.0) * trained
        micro_batch = (gathers * short * parameters + scattered) * _ring(degrees.sharers, devices)
        copies = instances * devices // degrees.sharers
        if copies > 1:
            # Of shards between instances, even where some copies are in one.
            micro_batch += 8.0 * trained * Volume(network=(copies - 1) / copies * devices / degrees.sharers)
    sent = short * activations
    times = (6 if recomputes else 4) * layers / stages
    blocking = Volume(link=times * 2 * (tensor - 1) / tensor * sent)
    if stages > 1:
        # A stage in the middle sends activations on and gradients back.
        blocking += Volume(network=2 * sent * each) if of_stage >= each else Volume(link=2 * sent)
    # `tensor` rings at a time, each over its own links, all over one network connection.
    of_rings = [Volume(link=volume.link, network=tensor * volume.network) for volume in (micro_batch, step)]
    return Exchange(micro_batch=of_rings[0], step=of_rings[1], blocking=blocking)


def _ring(members: int, devices: int) -> Volume:
    """Return the shares of a byte in an all-gather over `members` devices, on as few instances as hold them."""
    within, across = min(members, devices), math.ceil(members / devices)
    return Volume(link=(within - 1) / within, network=(across - 1) / across)
