{{/* The environment of a worker: (dict "engine" its name, or a reference to a variable; "url" of its engine, empty: it starts one; "pool"). */}}
{{- define "slackwater.workerEnv" -}}
- { name: POD_NAME, valueFrom: { fieldRef: { fieldPath: metadata.name } } }
- { name: POD_IP, valueFrom: { fieldRef: { fieldPath: status.podIP } } }
{{- with .engine }}
- { name: SLACKWATER_ENGINE_NAME, value: {{ . }} }
{{- end }}
{{- with .url }}
- { name: SLACKWATER_ENGINE_URL, value: {{ . | quote }} }
{{- end }}
{{- with .pool.model }}
- { name: SLACKWATER_ENGINE_MODEL, value: {{ . | quote }} }
{{- end }}
{{- with .pool.keySecret }}
- { name: SLACKWATER_ENGINE_API_KEY, valueFrom: { secretKeyRef: {{ toJson . }} } }
{{- end }}
- { name: SLACKWATER_ARRIVAL_HOST, value: 0.0.0.0 }
- { name: SLACKWATER_ARRIVAL_PORT, value: "8711" }
- { name: SLACKWATER_ARRIVAL_URL, value: "http://$(POD_IP):8711" }
- { name: SLACKWATER_WORKER_METRICS_PORT, value: "0" } # the page is at 8711 too, whatever the engine's name ends in
- { name: SLACKWATER_DRAIN_SECONDS, value: {{ include "slackwater.drain" .pool | quote }} }
{{- end }}

{{/* The probe of a worker that has its page at the port `metrics`. */}}
{{- define "slackwater.live" -}}
livenessProbe: { httpGet: { path: /live, port: metrics }, initialDelaySeconds: 30, periodSeconds: 10, timeoutSeconds: 5, failureThreshold: 6 }
{{- end }}

{{/* The end of a pod, in seconds. The worker drains at once; its engine waits until that is done and until its callers have gone
     elsewhere. A node that goes with little notice leaves 15 seconds in all. */}}
{{- define "slackwater.drain" -}}{{ ternary 8 20 (.spot | default false) }}{{- end }}
{{- define "slackwater.linger" -}}{{ ternary 2 15 (.spot | default false) }}{{- end }}

{{/* The security context of a container from an engine's image: (an entry of `engines`). What the pool says goes over the defaults. */}}
{{- define "slackwater.engineContext" -}}
{{- $default := dict "allowPrivilegeEscalation" false "runAsNonRoot" true "capabilities" (dict "drop" (list "ALL")) -}}
{{- mergeOverwrite $default (deepCopy (.securityContext | default dict)) | toJson -}}
{{- end }}

{{/* The pod of one engine with its worker: (dict "root" $ "pool" an entry of `engines`). */}}
{{- define "slackwater.enginePod" -}}
{{- $pool := .pool -}}
{{- $port := $pool.port | default 8000 -}}
{{- $managed := $pool.managed | default false -}}
{{- $plugin := and (ne $pool.plugin false) (not $managed) -}}
{{- $stop := add (include "slackwater.linger" $pool | int) (include "slackwater.drain" $pool | int) -}}
metadata:
  labels:
    {{- include "slackwater.selector" (dict "root" .root "part" "engine" "pool" $pool.name) | nindent 4 }}
    slackwater/job: slackwater-worker
  annotations:
    {{- include "slackwater.annotations" (dict "root" .root "annotations" $pool.podAnnotations) | nindent 4 }}
spec:
  {{- include "slackwater.podspec" (dict "root" .root "nodeSelector" $pool.nodeSelector "tolerations" $pool.tolerations) | nindent 2 }}
  terminationGracePeriodSeconds: {{ add $stop 5 }}
  securityContext: { fsGroup: 10001, seccompProfile: { type: RuntimeDefault } } # engine and worker share pages as this group
  {{- if $plugin }}
  initContainers:
    - name: plugin
      image: {{ include "slackwater.image" .root }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      command: [cp, --recursive, /opt/slackwater/plugin/., /plugin]
      securityContext: {{ include "slackwater.ownContext" true }}
      volumeMounts: [{ name: plugin, mountPath: /plugin }]
  {{- end }}
  containers:
    {{- if not $managed }}
    - name: engine
      image: {{ $pool.image }}
      {{- with $pool.command }}
      command: {{ toJson . }}
      {{- end }}
      args: {{ toJson $pool.args }}
      env:
        {{- if $plugin }}
        - { name: PYTHONPATH, value: /plugin }
        - { name: SLACKWATER_HARVEST, value: "on" }
        - { name: SLACKWATER_PAGE_DIR, value: /pages }
        {{- end }}
        {{- range $pool.env }}
        - {{ toJson . }}
        {{- end }}
      {{- with $pool.envFrom }}
      envFrom: {{ toJson . }}
      {{- end }}
      ports: [{ name: http, containerPort: {{ $port }} }]
      startupProbe: { httpGet: { path: /health, port: http }, periodSeconds: 5, failureThreshold: 360 }
      livenessProbe: { httpGet: { path: /health, port: http }, periodSeconds: 10, timeoutSeconds: 5, failureThreshold: 6 }
      readinessProbe: { httpGet: { path: /health, port: http }, periodSeconds: 5, timeoutSeconds: 5 }
      lifecycle: { preStop: { sleep: { seconds: {{ $stop }} } } }
      securityContext: {{ include "slackwater.engineContext" $pool }}
      {{- with $pool.resources }}
      resources: {{ toJson . }}
      {{- end }}
      volumeMounts:
        - { name: shm, mountPath: /dev/shm }
        {{- if $plugin }}
        - { name: plugin, mountPath: /plugin, readOnly: true }
        - { name: pages, mountPath: /pages }
        {{- end }}
        {{- range $pool.volumeMounts }}
        - {{ toJson . }}
        {{- end }}
    {{- end }}
    {{- /* An ordinary container: a sidecar would get its SIGTERM only after the engine has ended. It is always ready: the pod, and with
           it the engine, serves its callers whatever the state of the worker, whose silence its lease ends. */}}
    {{- $env := include "slackwater.workerEnv" (dict "engine" "$(POD_NAME)" "url" (ternary "" (printf "http://$(POD_IP):%d" (int $port)) $managed) "pool" $pool) }}
    {{- $worker := $pool.worker | default dict }}
    {{- $mounts := $worker.volumeMounts | default list }}
    {{- if $plugin }}
    {{- $env = printf "%s\n- { name: SLACKWATER_PAGE_DIR, value: /pages }" $env }}
    {{- $mounts = prepend $mounts (dict "name" "pages" "mountPath" "/pages") }}
    {{- end }}
    {{- $container := dict "root" .root "role" "worker" "name" "gpu-worker" "command" (list "slackwater" "gpu-worker") "env" $env "ports" (dict "metrics" 8711) "resources" $worker.resources "settings" $worker.settings "mounts" $mounts "probes" (include "slackwater.live" .) }}
    {{- if $managed }}
    {{- $env = printf "%s\n- { name: SLACKWATER_ENGINE_HOST, value: $(POD_IP) }\n- { name: SLACKWATER_ENGINE_PORT, value: %q }" $env (toString $port) }}
    {{- $container = merge (dict "image" $pool.image "env" $env "ports" (dict "http" $port "metrics" 8711) "resources" $pool.resources "writesRoot" true "mounts" (concat (list (dict "name" "shm" "mountPath" "/dev/shm")) ($pool.volumeMounts | default list) $mounts)) $container }}
    {{- end }}
    - {{- include "slackwater.container" $container | nindent 6 }}
  volumes:
    {{- include "slackwater.volumes" (dict "root" .root "role" "worker" "size" (ternary "20Gi" "1Gi" $managed)) | nindent 4 }}
    - { name: shm, emptyDir: { medium: Memory, sizeLimit: {{ $pool.shm | default "8Gi" }} } }
    {{- if $plugin }}
    - { name: plugin, emptyDir: { sizeLimit: 64Mi } }
    - { name: pages, emptyDir: { medium: Memory, sizeLimit: 1Mi } }
    {{- end }}
    {{- range $pool.volumes }}
    - {{ toJson . }}
    {{- end }}
{{- end }}

{{/* The other pods of an engine's group over several nodes: (dict "root" $ "pool" an entry of `engines` with a `group`). */}}
{{- define "slackwater.groupPod" -}}
{{- $group := .pool.group -}}
metadata:
  labels:
    {{- include "slackwater.selector" (dict "root" .root "part" "engine-group" "pool" .pool.name) | nindent 4 }}
spec:
  {{- include "slackwater.podspec" (dict "root" .root "nodeSelector" .pool.nodeSelector "tolerations" .pool.tolerations) | nindent 2 }}
  securityContext: { seccompProfile: { type: RuntimeDefault } }
  containers:
    - name: engine
      image: {{ $group.image | default .pool.image }}
      command: {{ toJson $group.command }}
      {{- with $group.args }}
      args: {{ toJson . }}
      {{- end }}
      {{- with .pool.env }}
      env: {{ toJson . }}
      {{- end }}
      {{- with .pool.envFrom }}
      envFrom: {{ toJson . }}
      {{- end }}
      {{- with $group.resources | default .pool.resources }}
      resources: {{ toJson . }}
      {{- end }}
      securityContext: {{ include "slackwater.engineContext" .pool }}
      volumeMounts:
        - { name: shm, mountPath: /dev/shm }
        {{- range .pool.volumeMounts }}
        - {{ toJson . }}
        {{- end }}
  volumes:
    - { name: shm, emptyDir: { medium: Memory, sizeLimit: {{ .pool.shm | default "8Gi" }} } }
    {{- range .pool.volumes }}
    - {{ toJson . }}
    {{- end }}
{{- end }}

{{/* A Deployment of workers for engines that run elsewhere: (dict "root" $ "pool" an entry of `attach` "name" "env" text). */}}
{{- define "slackwater.attached" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .name }}
  labels: { {{ include "slackwater.labels" .root | splitList "\n" | join ", " }}, app.kubernetes.io/component: worker, slackwater/pool: {{ .pool.name }} }
spec:
  replicas: {{ .pool.replicas | default 1 }}
  selector:
    matchLabels:
      {{- include "slackwater.selector" (dict "root" .root "part" "worker" "pool" .pool.name) | nindent 6 }}
      slackwater/workers: {{ .name }}
  template:
    metadata:
      labels:
        {{- include "slackwater.selector" (dict "root" .root "part" "worker" "pool" .pool.name) | nindent 8 }}
        slackwater/workers: {{ .name }}
        slackwater/job: slackwater-worker
      annotations:
        {{- include "slackwater.annotations" (dict "root" .root) | nindent 8 }}
    spec:
      {{- include "slackwater.podspec" (dict "root" .root "nodeSelector" .root.Values.nodeSelector "tolerations" .root.Values.tolerations) | nindent 6 }}
      terminationGracePeriodSeconds: {{ add (include "slackwater.drain" .pool | int) 5 }}
      securityContext: { fsGroup: 10001, seccompProfile: { type: RuntimeDefault } }
      {{- /* It is not ready while it asks its engine for its model, or reads the list; that is no reason to restart it. A spare one is
             ready, because a rolling update ends those that have the engines only then. */}}
      {{- $probes := printf "%s\nreadinessProbe: { httpGet: { path: /health, port: metrics }, periodSeconds: 5, timeoutSeconds: 5 }" (include "slackwater.live" .) }}
      containers:
        - {{- include "slackwater.container" (dict "root" .root "role" "worker" "name" "gpu-worker" "command" (list "slackwater" "gpu-worker") "env" .env "ports" (dict "metrics" 8711) "probes" $probes "resources" .pool.resources "settings" .pool.settings "mounts" .pool.volumeMounts) | nindent 10 }}
      volumes:
        {{- include "slackwater.volumes" (dict "root" .root "role" "worker") | nindent 8 }}
        {{- range .pool.volumes }}
        - {{ toJson . }}
        {{- end }}
{{- end }}
