#!/usr/bin/env bash
# A Kubernetes cluster on this machine with Slackwater, PostgreSQL and a small model on the CPU, and one batch run in it.
#   deploy/kind.sh          create or upgrade it; safe to repeat
#   deploy/kind.sh delete   remove the cluster with all its data
# Needs docker, kind, kubectl and helm; 8 GB of memory and 20 GB of disk; the first build takes ten minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
cluster=slackwater
context=kind-$cluster
secret=slackwater-secrets

say() { echo "kind: $*" >&2; }
kube() { kubectl --context "$context" "$@"; }

require() {
    local tool missing=()
    for tool in "$@"; do type -P "$tool" >/dev/null || missing+=("$tool"); done
    [ ${#missing[@]} -eq 0 ] || { say "missing: ${missing[*]}. See https://kind.sigs.k8s.io and https://helm.sh"; exit 1; }
    docker info >/dev/null 2>&1 || { say "docker does not answer: start it, or join the group docker"; exit 1; }
}

create_cluster() {
    grep -qx "$cluster" <<<"$(kind get clusters 2>/dev/null)" || kind create cluster --name "$cluster" --wait 2m
}

load_images() {
    docker build --quiet --tag slackwater:kind . >/dev/null
    docker build --quiet --tag slackwater-engine:kind --build-arg EXTRA=cpu . >/dev/null
    kind load docker-image --name "$cluster" slackwater:kind slackwater-engine:kind
}

# The tags stay the same, so the pods say which images they run: new ones replace them.
image_ids() { docker image inspect --format '{{.Id}}' slackwater:kind slackwater-engine:kind | tr '\n' ' '; }

# The secret key stays what it was: the database has what it encrypted.
create_secret() {
    kube get secret "$secret" >/dev/null 2>&1 && return
    local password
    password=$(openssl rand -hex 16)
    kube create secret generic "$secret" \
        --from-literal=postgres-password="$password" \
        --from-literal=database-url="postgresql://slackwater:$password@postgres:5432/slackwater" \
        --from-literal=secret-key="$(openssl rand -hex 32)"
}

run_a_batch() {
    local api=deploy/slackwater-api key
    key=$(kube exec "$api" -- slackwater key create --account demo | tail -1)
    kube exec --stdin "$api" -- env SLACKWATER_URL=http://127.0.0.1:8700 SLACKWATER_API_KEY="$key" \
        slackwater submit - --format prompts --model smollm2-135m-instruct --watch \
        <<<$'What is the capital of France?\nWhat is the capital of Italy?'
    say "the API: kubectl --context $context port-forward service/slackwater-api 8700, with the key $key"
    say "the console: kubectl --context $context port-forward service/slackwater-console 8701, and"
    say "  kubectl --context $context exec deploy/slackwater-console -- slackwater console login"
}

case ${1:-create} in
create)
    require docker kind kubectl helm openssl
    create_cluster
    load_images
    create_secret
    kube apply --filename deploy/kind/postgres.yaml
    kube rollout status statefulset/postgres --timeout 5m
    helm upgrade --install slackwater deploy/helm/slackwater --kube-context "$context" \
        --values deploy/helm/slackwater/values/kind.yaml --set-string "podAnnotations.images=$(image_ids)" --wait --timeout 15m
    run_a_batch
    ;;
delete)
    require docker kind
    kind delete cluster --name "$cluster"
    ;;
*)
    say "there is no '$1'; use: deploy/kind.sh [create|delete]"
    exit 2
    ;;
esac
