#!/usr/bin/env bash
# Checks the alerts of docs/operate with promtool, and has a Prometheus server scrape a run for a minute.
#   scripts/check_prometheus.sh BUILD/trireme       needs the package 'prometheus' and curl
set -euo pipefail
cd "$(dirname "$0")/.."
trireme=$(realpath "$1")
promtool check rules docs/operate/alerts.yaml

place=$(mktemp -d)
trap 'kill $(jobs -p) 2> /dev/null || true; wait; rm -rf "$place"' EXIT
cp docs/operate/alerts.yaml "$place"
cd "$place"
mkdir text
for i in $(seq 20); do seq "$i" $((i + 900)) > "text/$i.txt"; done
"$trireme" data build text --output corpus --tokenizer bytes > /dev/null
cat > config.yaml << END
model: {family: llama, layers: 2, width: 64, heads: 4, kv_heads: 2, ffn: 128, vocab: 257, context: 64}
data: {train: [corpus/*.h5]}
checkpoint: {every: 200}
train: {name: run, steps: 1000000, batch: 8, eval_every: 0, log_every: 1000}
report: {metrics_port: 9464}
END
cat > prometheus.yml << END
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [alerts.yaml]
scrape_configs: [{job_name: trireme, static_configs: [{targets: ["localhost:9464"]}]}]
END
"$trireme" train config.yaml > train.log &
prometheus --config.file=prometheus.yml --storage.tsdb.path=tsdb --web.listen-address=localhost:9465 > prometheus.log 2>&1 &

# The value of an instant query; nothing if it has no sample.
query() { curl -sfG localhost:9465/api/v1/query --data-urlencode "query=$1" | sed -n 's/.*"value":\[[^,]*,"\([^"]*\)"\].*/\1/p'; }
sleep 60
scraped=$(query 'count_over_time(trireme_step[1m])')
up=$(query 'min_over_time(up[50s])')
last=$(query 'trireme_step')
speed=$(query 'rate(trireme_tokens_total[30s])')
firing=$(query 'count(ALERTS{alertstate="firing"})')
echo "check_prometheus: $scraped scrapes in a minute, the last at step $last, $speed tokens a second, ${firing:-no} alerts"
[ "$scraped" -ge 40 ] && [ "$up" = 1 ] && [ -z "$firing" ]
kill -STOP %1
sleep 15
[ "$(query 'up')" = 0 ] || { echo "check_prometheus: a run that is stopped still answers"; exit 1; }
kill -CONT %1
sleep 3
[ "$(query 'up')" = 1 ] || { echo "check_prometheus: a run that continues does not answer"; exit 1; }
