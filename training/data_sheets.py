"""What GPUs do at most, by the data sheets of their makers. Imports no torch."""

# Dense bf16 TFLOP/s with sums in float32: a name of torch.cuda.get_device_name holds one of these, of which the first
# counts. NVIDIA's data sheets of A100, H100 (SXM, PCIe, NVL), H200, B200 (per GPU, without sparsity), L40S and A10G;
# GeForce RTX 4090: the white paper of the Ada architecture; AMD's data sheet of the Instinct MI300X.
DATA_SHEETS = {
    "H100 PCIe": 756.0,
    "H100 NVL": 835.0,
    "H100": 989.5,
    "H200": 989.5,
    "B200": 2250.0,
    "A100": 312.0,
    "L40S": 362.0,
    "A10G": 125.0,
    "RTX 4090": 165.2,
    "MI300X": 1307.4,
}


def data_sheet_flops(device_name: str) -> float | None:
    """Floating-point operations a second that a device's data sheet promises in bf16; None for one not listed. The
    case of letters does not count."""
    given = device_name.lower()
    return next((1e12 * peak for name, peak in DATA_SHEETS.items() if name.lower() in given), None)
