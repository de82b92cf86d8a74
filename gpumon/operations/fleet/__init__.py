"""GPUs of many hosts: totals, what stands out, histories, and the PromQL of each list."""
