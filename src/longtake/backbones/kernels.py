"""Which kernels run the linear-attention layers."""

from __future__ import annotations

from importlib import import_module

_KERNELS = {"gated delta rule": "fla", "causal convolution": "causal_conv1d"}
REFERENCE = "torch reference"


def linear_attention_kernels() -> dict[str, str]:
    """For each operation the package whose kernel runs it, or the library's reference in torch.

    The library binds a package's kernels wherever the package can be imported; there is nothing to choose here.
    """
    return {operation: package if _imports(package) else REFERENCE for operation, package in _KERNELS.items()}


def _imports(package: str) -> bool:
    try:
        import_module(package)
    except Exception:  # a kernel package that breaks at import is not used either
        return False
    return True
