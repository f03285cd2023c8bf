"""Worked examples of the papers, by which the formulas of planning are tested. Each table names where it stands.

Numbers are as printed there; a test allows for the digits that were printed, and says where it allows for more.
"""

# Hoffmann et al. 2022 (arXiv 2203.15556), Table 3, approach 1: parameters, operations, tokens of optimal training.
CHINCHILLA_1 = (
    (400e6, 1.92e19, 8.0e9),
    (1e9, 1.21e20, 20.2e9),
    (10e9, 1.23e22, 205.1e9),
    (67e9, 5.76e23, 1.5e12),
    (175e9, 3.85e24, 3.7e12),
    (280e9, 9.90e24, 5.9e12),
    (520e9, 3.43e25, 11.0e12),
    (1e12, 1.27e26, 21.2e12),
    (10e12, 1.30e28, 216.2e12),
)
# The same, Table A3 (appendix D.3): approaches 2 and 3. Of 175 billion by approach 3 the paper prints 1.26e+24, which
# is a misprint: 6 N D of its own tokens is 1.26e+25, and the rows around it fit that.
CHINCHILLA_2 = (
    (400e6, 1.84e19, 7.7e9),
    (1e9, 1.20e20, 20.0e9),
    (10e9, 1.32e22, 219.5e9),
    (67e9, 6.88e23, 1.7e12),
    (175e9, 4.54e24, 4.3e12),
    (280e9, 1.18e25, 7.1e12),
    (520e9, 4.19e25, 13.4e12),
    (1e12, 1.59e26, 26.5e12),
    (10e12, 1.75e28, 292.0e12),
)
CHINCHILLA_3 = (
    (400e6, 2.21e19, 9.2e9),
    (1e9, 1.62e20, 27.1e9),
    (10e9, 2.46e22, 410.1e9),
    (67e9, 1.71e24, 4.1e12),
    (175e9, 1.26e25, 12.0e12),
    (280e9, 3.52e25, 20.1e12),
    (520e9, 1.36e26, 43.5e12),
    (1e12, 5.65e26, 94.1e12),
    (10e12, 8.55e28, 1425.5e12),
)
# The same, Table 2: the power of compute with which parameters and tokens grow, by approach 1, 2, 3.
CHINCHILLA_POWERS = ((0.50, 0.50), (0.49, 0.51), (0.46, 0.54))
# The same, section 4: the model that was trained, with 20 tokens a parameter.
CHINCHILLA_70B = (70e9, 1.4e12, 5.76e23)

# The same, equation 10 (appendix D.2): E, A, alpha, B, beta of approach 3, the exponents to two digits; and to four,
# with E, as the TeX source has them, by Besiroglu et al. 2024 (Table 1), who say that the rounding is why the law
# misses.
CHINCHILLA_LAW = (1.69, 406.4, 0.34, 410.7, 0.28)
CHINCHILLA_SOURCE = (1.6934, 406.4, 0.3392, 410.7, 0.2849)
# Sardana et al. 2024 (arXiv 2401.00448), section 2, and the constants of their published code: the same law with three
# digits of the exponents.
SARDANA_LAW = (1.69, 406.4, 0.336, 410.7, 0.283)

# Besiroglu et al. 2024 (arXiv 2404.10102), Table 1: E, A, alpha, B, beta; and the power of parameters that follows.
BESIROGLU = (1.8172, 482.01, 0.3478, 2085.43, 0.3658)
BESIROGLU_POWER = 0.5126

# Kaplan et al. 2020 (arXiv 2001.08361), Table 6 (appendix A): parameters without embeddings, 1.3e9 (C / PF-day)^0.73.
# PF-days of compute, parameters.
KAPLAN = ((1.0, 1.3e9), (10.0, 6.98e9))

# Sardana et al. 2024 (arXiv 2401.00448), section 2 and Figure 1: of a model of Chinchilla's quality with so many
# parameters that is to serve so many tokens, the parameters to train instead, the tokens over Chinchilla's, and the
# share of all operations that is saved.
SARDANA = (
    (30e9, 1e13, 13.6e9, 2.84, 0.28),
    (13e9, 2e12, 7e9, None, 0.17),
    (7e9, 1e11, 6e9, 1.18, None),
)
SARDANA_SAVED = 1.7e22  # operations, of the second

# Muennighoff et al. 2023 (arXiv 2305.16264), appendix A: L = 1.87 + 521 / N'^.353 + 1488 / D'^.353, R_D* = 15.387756,
# R_N* = 5.309743, U_N = .051 U_D. Figure 1 and section 5: with 25 billion unique tokens and the operations of 8.67
# billion parameters on 178 billion tokens, the best is 6.34 billion parameters on 242 billion tokens, 9.7 epochs.
MUENNIGHOFF = {"unique": 25e9, "chinchilla": (8.67e9, 178e9), "best": (6.34e9, 242e9, 9.7)}
# Section 3.1: repeated for ever, U unique tokens are worth (1 + R_D*) U. Section 5: at R_D = R_D* a repeated token is
# worth 1 - 1/e of a new one on average.
MUENNIGHOFF_LIMIT = 1 + 15.387756

# Rajbhandari et al. 2020 (ZeRO, arXiv 1910.02054), Figure 1: 7.5 billion parameters, 64 devices, mixed precision with
# Adam: 2 + 2 + 12 bytes a parameter; GB (1e9) of each device with nothing sharded, and with weights, gradients and
# optimizer sharded.
ZERO = {"parameters": 7.5e9, "devices": 64, "bytes": 16, "none": 120.0, "all": 1.9}

# Narayanan et al. 2021 (Megatron-LM, arXiv 2104.04473), section 5.1, equation 4: days = 8 T P / (n X), with
# recomputation; the trillion is 1,008 billion in its Table 1. Tokens, parameters, GPUs, operations a second of a GPU,
# days.
MEGATRON_DAYS = (
    (300e9, 175e9, 1024, 140e12, 34),
    (450e9, 1.008e12, 3072, 163e12, 84),
)
# Huang et al. 2019 (GPipe, arXiv 1811.06965), section 2.3: bubble (K - 1) / (M + K - 1), small where M >= 4 K.
BUBBLE = ((1, 8, 0.0), (4, 4, 3 / 7), (4, 16, 3 / 19), (8, 8, 7 / 15), (8, 32, 7 / 39))

# Korthikanti et al. 2022 (arXiv 2205.05198), Table 2: bytes of activations of a layer, over s b h, by heads a, length
# s, width h and tensor parallelism t: 34 + 5 a s / h; 10 + (24 + 5 a s / h) / t; (34 + 5 a s / h) / t with the sequence
# divided, too; 34 / t without the scores of attention; 2 with full recomputation. Section 5: 5 a s / h is 80 for GPT-3
# and 64 for MT-NLG. Heads, length, width, 5 a s / h.
KORTHIKANTI = {"gpt3": (96, 2048, 12288, 80.0), "mt-nlg": (128, 2048, 20480, 64.0)}

# Chowdhery et al. 2022 (PaLM, arXiv 2204.02311), section 4.1 and appendix B: 540.35 billion parameters, 118 layers, 48
# heads of 256, length 2,048, 238.3 thousand tokens a second on 6,144 TPU v4 of 275 TFLOP/s: MFU 46.2%, 45.7% without
# the attention's scores.
PALM = {
    "parameters": 540.35e9, "layers": 118, "heads": 48, "head_dim": 256, "length": 2048,
    "tokens_per_second": 238.3e3, "devices": 6144, "peak": 275e12, "mfu": 0.462, "mfu_without": 0.457,
}  # fmt: skip

# Touvron et al. 2023 (Llama 2, arXiv 2307.09288), Table 2: hours of A100 of 80 GB for 2 trillion tokens, length 4,096;
# shape as in Touvron et al. 2023 (Llama, arXiv 2302.13971), Table 2, with 32,000 tokens and SwiGLU of 11,008: 6.74
# billion parameters.
LLAMA_2_7B = {
    "dim": 4096, "layers": 32, "heads": 32, "ffn": 11008, "length": 4096, "vocabulary": 32000,
    "parameters": 6_738_415_616, "tokens": 2e12, "hours": 184_320, "operations_6nd": 8.1e22,
}  # fmt: skip
# Llama, section 2.4: 65 billion parameters, 380 tokens a second on each of 2,048 A100: 1.4 trillion tokens in 21 days.
LLAMA_65B = {"tokens": 1.4e12, "devices": 2048, "rate": 380.0, "days": 21}

# Young 1974 (Communications of the ACM 17:9): sqrt(2 delta M). Daly 2006 (Future Generation Computer Systems 22:3),
# equation 37: the same times 1 + x/3 + x^2/9, less delta, with x = sqrt(delta / 2 M); M where delta >= 2 M.
# Seconds of a checkpoint, seconds between failures, Young's interval.
YOUNG = ((60.0, 86_400.0, 3219.94), (300.0, 86_400.0, 7200.0), (10.0, 11_000.0, 469.04))

# Grattafiori et al. 2024 (Llama 3, arXiv 2407.21783), section 3.3.4: 419 unexpected interruptions in 54 days of 16,384
# H100: one every 3.1 hours.
LLAMA_3_FAILURES = {"interruptions": 419, "days": 54, "devices": 16_384, "hours": 3.1}
