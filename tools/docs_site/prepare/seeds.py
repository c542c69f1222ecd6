"""Six runs: two learning rates with three seeds each."""

from small_training import train

for rate in (0.003, 0.03):
    for seed in (1, 2, 3):
        records = f"records/rate-{rate:g}-seed-{seed}"
        details = {"seed": seed, "group": f"rate {rate:g}"}
        train(records, rate, seed, 100, shuffle=True, collect_freq=2, custom_lineage_data=details)
