{{/* The environment of a part: (dict "root" $ "role" "api"). `role` selects the database URL where each part has its own. */}}
{{- define "slackwater.env" -}}
{{- $secret := include "slackwater.secret" .root -}}
{{- $values := .root.Values -}}
{{- /* A maintenance worker works under the steward's role. */}}
{{- $of := ternary (printf "-%s" (ternary "steward" .role (eq .role "maintenance"))) "" (and $values.database.roles (ne .role "migrate")) -}}
{{- $further := dict "api" (list "operator-token") "console" (list "oidc-client-secret") -}}
{{- $optional := prepend (get $further .role | default list) "secret-key-accepted" -}}
{{- if include "slackwater.opens" . }}{{ $optional = append $optional "vault-token" }}{{ end }}
- name: SLACKWATER_DATABASE_URL
  valueFrom: { secretKeyRef: { name: {{ $secret }}, key: database-url{{ $of }} } }
- name: SLACKWATER_DATABASE_DIRECT_URL
  valueFrom: { secretKeyRef: { name: {{ $secret }}, key: database-direct-url{{ $of }}, optional: true } }
{{- if has .role (list "steward" "maintenance" "notifier") }}
- name: SLACKWATER_BROKER_URL
  valueFrom: { secretKeyRef: { name: {{ $secret }}, key: broker-url, optional: {{ not $values.database.roles }} } }
{{- end }}
- name: SLACKWATER_SECRET_KEY
  valueFrom: { secretKeyRef: { name: {{ $secret }}, key: secret-key } }
{{- range $key := $optional }}
- name: SLACKWATER_{{ $key | upper | replace "-" "_" }}
  valueFrom: { secretKeyRef: { name: {{ $secret }}, key: {{ $key }}, optional: true } }
{{- end }}
- { name: SLACKWATER_DATA_DIR, value: /data }
- { name: SLACKWATER_STORAGE_URL, value: {{ $values.store.url | quote }} }
{{- with $values.store.endpoint }}
- { name: SLACKWATER_STORAGE_ENDPOINT, value: {{ . | quote }} }
{{- end }}
- { name: SLACKWATER_LOG_FORMAT, value: json }
- { name: SLACKWATER_HOST, value: 0.0.0.0 }
- { name: SLACKWATER_OTLP_ENDPOINT, value: {{ $values.tracing.endpoint | quote }} }
{{- if and $values.models (ne .role "migrate") }}
- { name: SLACKWATER_MODELS_FILE, value: /etc/slackwater/models.toml }
{{- end }}
{{- range $name, $value := merge (dict) (.settings | default dict) $values.settings }}
- { name: SLACKWATER_{{ $name }}, value: {{ $value | toString | quote }} }
{{- end }}
{{- end }}

{{/* Whether a part seals and opens what is stored, so that it needs the keys: (dict "role" …). */}}
{{- define "slackwater.opens" -}}{{ if has .role (list "api" "console" "steward" "maintenance" "worker") }}true{{ end }}{{- end }}

{{/* The security context of a container of our image: (whether its root is read only). */}}
{{- define "slackwater.ownContext" -}}
{ allowPrivilegeEscalation: false, readOnlyRootFilesystem: {{ . }}, runAsNonRoot: true, runAsUser: 10001, capabilities: { drop: [ALL] } }
{{- end }}

{{/* A container of our image: (dict "root" $ "role" … "command" list, and optionally "name", "image", "env" text, "ports" list, "probes"
     text, "mounts" list, "resources", "settings"; "bare": without what the release creates only after its hooks). */}}
{{- define "slackwater.container" -}}
name: {{ .name | default .role }}
image: {{ .image | default (include "slackwater.image" .root) }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
command: {{ toJson .command }}
env:
  {{- include "slackwater.env" . | nindent 2 }}
  {{- with .env }}
  {{- . | nindent 2 }}
  {{- end }}
{{- with .root.Values.store.secret }}
envFrom: [{ secretRef: { name: {{ . }} } }]
{{- end }}
{{- with .ports }}
ports:
  {{- range $name, $port := . }}
  - { name: {{ $name }}, containerPort: {{ $port }} }
  {{- end }}
{{- end }}
{{- with .probes }}
{{ . | trim }}
{{- end }}
{{- with .resources }}
resources: {{ toJson . }}
{{- end }}
securityContext: {{ include "slackwater.ownContext" (not .writesRoot) }}
volumeMounts:
  - { name: data, mountPath: /data }
  - { name: tmp, mountPath: /tmp }
  {{- if and .root.Values.store.claim (not .bare) }}
  - { name: objects, mountPath: /objects }
  {{- end }}
  {{- if and .root.Values.keys.claim (include "slackwater.opens" .) }}
  - { name: keys, mountPath: /data/keys }
  {{- end }}
  {{- if and .root.Values.models (not .bare) }}
  - { name: models, mountPath: /etc/slackwater, readOnly: true }
  {{- end }}
  {{- range .mounts }}
  - {{ toJson . }}
  {{- end }}
{{- end }}

{{/* The volumes of that container: (dict "root" $ "role" … "size" of /data, "bare"). */}}
{{- define "slackwater.volumes" -}}
- { name: data, emptyDir: { sizeLimit: {{ .size | default "1Gi" }} } }
- { name: tmp, emptyDir: { sizeLimit: 1Gi } }
{{- if and .root.Values.store.claim (not .bare) }}
- { name: objects, persistentVolumeClaim: { claimName: {{ .root.Values.store.claim }} } }
{{- end }}
{{- if and .root.Values.keys.claim (include "slackwater.opens" .) }}
- { name: keys, persistentVolumeClaim: { claimName: {{ .root.Values.keys.claim }} } }
{{- end }}
{{- if and .root.Values.models (not .bare) }}
- { name: models, configMap: { name: {{ include "slackwater.name" .root }}-models } }
{{- end }}
{{- end }}

{{/* What all our pods have. */}}
{{- define "slackwater.podspec" -}}
serviceAccountName: {{ include "slackwater.account" .root }}
automountServiceAccountToken: false # clouds mount the token of an identity themselves
enableServiceLinks: false
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- end }}

{{/* The annotations of a pod. A change of what it reads at its start replaces it. */}}
{{- define "slackwater.annotations" -}}
slackwater/config: {{ printf "%s%s" .root.Values.models (toJson .root.Values.secrets.values) | sha256sum | trunc 16 | quote }}
{{- range $name, $value := merge (dict) (.annotations | default dict) .root.Values.podAnnotations }}
{{ $name }}: {{ $value | quote }}
{{- end }}
{{- end }}
