/** `postcommit/metrics`: metrics for Prometheus and OpenTelemetry. */
export type { MetricName, MetricType } from './definitions.ts';
export type { Metrics, MetricsOptions } from './metrics.ts';
export { createMetrics } from './metrics.ts';
export type { Meter } from './open-telemetry.ts';
export type { Registry } from './prom-client.ts';
export type { Labels } from './series.ts';
