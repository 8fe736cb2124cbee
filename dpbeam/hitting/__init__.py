"""k-hitting set: at most k items that as many users as possible hold one of, on an unknown domain.

Settings and plan (`config`), sets of users that are not hit yet (`cover`), the program of blocks and hub (`program`),
what it is compared with (`baselines`). No Beam here but in `transforms`.
"""
