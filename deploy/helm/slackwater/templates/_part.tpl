{{/* A part without an engine, as a Deployment: (dict "root" $ "part" … "command" list "values" its table "port" "portName" "furtherPorts" dict "probes" text
     "env" text "job" of Prometheus "size" of /data "grace" seconds). */}}
{{- define "slackwater.part" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "slackwater.name" .root }}-{{ .part }}
  labels: { {{ include "slackwater.labels" .root | splitList "\n" | join ", " }}, app.kubernetes.io/component: {{ .part }} }
spec:
  {{- if not .scaled }}
  replicas: {{ .values.replicas }}
  {{- end }}
  selector:
    matchLabels:
      {{- include "slackwater.selector" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "slackwater.selector" . | nindent 8 }}
        {{- with .job }}
        slackwater/job: {{ . }}
        {{- end }}
      annotations:
        {{- include "slackwater.annotations" . | nindent 8 }}
    spec:
      {{- include "slackwater.podspec" (dict "root" .root "nodeSelector" .root.Values.nodeSelector "tolerations" .root.Values.tolerations) | nindent 6 }}
      terminationGracePeriodSeconds: {{ .grace | default 30 }}
      securityContext: { fsGroup: 10001, seccompProfile: { type: RuntimeDefault } }
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels:
              {{- include "slackwater.selector" . | nindent 14 }}
      containers:
        - {{- include "slackwater.container" (dict "root" .root "role" .part "command" .command "env" .env "ports" (merge (dict .portName .port) (.furtherPorts | default dict)) "probes" .probes "resources" .values.resources) | nindent 10 }}
      volumes:
        {{- include "slackwater.volumes" (dict "root" .root "role" .part "size" .size) | nindent 8 }}
{{- end }}

{{/* A budget of disruptions: one pod of the part at a time. */}}
{{- define "slackwater.budget" -}}
{{- if .root.Values.podDisruptionBudgets }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  labels: { {{ include "slackwater.labels" .root | splitList "\n" | join ", " }} }
spec:
  maxUnavailable: 1
  selector:
    matchLabels:
      {{- include "slackwater.selector" . | nindent 6 }}
{{- end }}
{{- end }}
