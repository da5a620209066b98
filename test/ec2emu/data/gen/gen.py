#!/usr/bin/env python3
# Copyright The Slipway Authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes ../facts.json.gz: what EC2 says about its instance types.

Sources (facts, both Apache-2.0):
  * the PyPI package moto: recorded answers of DescribeInstanceTypes and
    DescribeInstanceTypeOfferings of every region;
  * the Go module github.com/aws/karpenter-provider-aws: its table of on-demand
    prices (Linux, shared tenancy, USD an hour).

Usage, from the folder of this file:
    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install moto
    /tmp/venv/bin/python gen.py
"""

import gzip
import importlib.metadata
import importlib.util
import json
import pathlib
import re
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
KARPENTER = "github.com/aws/karpenter-provider-aws"


def load(path):
    with gzip.open(path) as f:
        return json.load(f)


def moto_resources():
    spec = importlib.util.find_spec("moto")
    return pathlib.Path(spec.origin).parent / "ec2" / "resources"


def karpenter_prices():
    out = subprocess.run(
        ["go", "list", "-m", "-f", "{{.Dir}} {{.Version}}", KARPENTER],
        check=True, capture_output=True, text=True, cwd=HERE,
    ).stdout.split()
    source = pathlib.Path(out[0], "pkg/providers/pricing/zz_generated.pricing_aws.go").read_text()
    generated = re.search(r"generated at (\S+)", source).group(1)
    table = re.search(r'"us-east-1": \{(.*?)\n\t\},', source, re.S).group(1)
    prices = {k: float(v) for k, v in re.findall(r'"([a-z0-9.-]+)": ([0-9.]+)', table)}
    return prices, f"{KARPENTER} {out[1]} ({generated})"


def offerings(resources, types):
    """region -> [zone letters…, masks]: bit i of a type's mask is zone i.

    Local and wavelength zones are left out: nodes of a cluster do not land there
    unless somebody opts in, and their catalogue is tiny."""
    names = sorted(types)
    result = {}
    for path in sorted((resources / "instance_type_offerings" / "availability-zone").glob("*.json.gz")):
        region = path.name.removesuffix(".json.gz")
        rows = [r for r in load(path) if re.fullmatch(re.escape(region) + "[a-z]", r["Location"])]
        zones = sorted({r["Location"] for r in rows})
        masks = dict.fromkeys(names, 0)
        for r in rows:
            if r["InstanceType"] in masks:
                masks[r["InstanceType"]] |= 1 << zones.index(r["Location"])
        result[region] = {"zones": zones, "masks": [masks[n] for n in names]}
    return result


# Members that many types share: each distinct value is written once.
SHARED = ["NetworkInfo", "EbsInfo", "VCpuInfo", "MemoryInfo", "InstanceStorageInfo"]


def share(types, names):
    """Splits types into rows of indexes (-1: absent) and pools of distinct values.

    The last pool, Common, has all other members. It makes the text four times
    smaller, and so loading four times faster."""
    pools = {member: [] for member in SHARED + ["Common"]}
    known = {member: {} for member in pools}

    def index(member, value):
        if value is None:
            return -1
        key = json.dumps(value, sort_keys=True)
        if key not in known[member]:
            known[member][key] = len(pools[member])
            pools[member].append(value)
        return known[member][key]

    rows = []
    for name in names:
        common = {k: v for k, v in types[name].items() if k not in SHARED and k != "InstanceType"}
        rows.append([index(m, types[name].get(m)) for m in SHARED] + [index("Common", common)])
    return rows, pools


def main():
    resources = moto_resources()
    types = load(resources / "instance_types.json.gz")
    prices, price_source = karpenter_prices()
    names = sorted(types)
    rows, pools = share(types, names)
    facts = {
        "sources": ["moto " + importlib.metadata.version("moto"), price_source],
        "names": names,
        "rows": rows,
        "pools": pools,
        "prices": {n: prices[n] for n in names if n in prices},
        "offerings": offerings(resources, types),
    }
    raw = json.dumps(facts, separators=(",", ":"), sort_keys=True).encode()
    # mtime 0 keeps the file equal for equal facts.
    (HERE.parent / "facts.json.gz").write_bytes(gzip.compress(raw, 9, mtime=0))
    print(f"{len(names)} types, {len(facts['prices'])} prices, {len(facts['offerings'])} regions, {len(raw)} bytes")


if __name__ == "__main__":
    main()
