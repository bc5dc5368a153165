import type { ServerList } from '../../database/connection-string.ts';
import type { Executor } from '../../database/executor.ts';
import type { GaugeSample, Metrics } from '../../metrics/metrics.ts';
import type { Logger } from '../../telemetry/logging.ts';
import { laneState } from '../lane/lane-state.ts';
import type { Service } from '../service/service.ts';
import { RelayMeter } from '../telemetry/relay-meter.ts';
import { GaugeSampler } from './gauge-sampler.ts';

export interface MetricsServiceOptions {
  metrics: Metrics | undefined;
  schema: string;
  name: string;
  servers: ServerList;
  leaseMs: number;
  listen: boolean;
  logger: Logger;
  /** The connection `control`. */
  db: () => Executor;
  token: () => string;
  status: () => {
    queues: Record<string, { inFlight: number; waiting: number }>;
    connected: boolean;
    listening: boolean;
    leading: boolean;
  };
}

/** The metrics of one run of a relay: what it counts, its own gauges, and its turn to sample those of the outbox. */
export class MetricsService implements Service {
  readonly meter: RelayMeter | undefined;
  readonly #options: MetricsServiceOptions;
  readonly #sampler: GaugeSampler | undefined;
  #removeGauges: (() => void) | undefined;

  constructor(options: MetricsServiceOptions) {
    this.#options = options;
    const { metrics } = options;
    if (!metrics) return;
    this.meter = new RelayMeter(metrics);
    this.#sampler = new GaugeSampler({
      ...options,
      relay: options.name,
      intervalMs: metrics.sampleIntervalMs,
      control: { query: (text, values) => options.db().query(text, values) },
    });
  }

  async start(): Promise<void> {
    this.#removeGauges ??= this.#options.metrics?.addGauges(() => [
      ...this.#ownGauges(),
      ...(this.#sampler?.samples ?? []),
    ]);
    await this.#sampler?.start();
  }

  /** With each heartbeat. Never fails. */
  async beat(): Promise<void> {
    await this.#sampler?.beat();
  }

  async stop(): Promise<void> {
    this.#removeGauges?.();
    await this.#sampler?.stop();
  }

  #ownGauges(): GaugeSample[] {
    const { queues, connected, listening, leading } = this.#options.status();
    const { kind, reason } = laneState(listening, this.#options.listen);
    return [
      ...Object.entries(queues).flatMap(([queue, { inFlight, waiting }]): GaugeSample[] => [
        { name: 'outbox_relay_in_flight', labels: { queue }, value: inFlight },
        { name: 'outbox_relay_buffered', labels: { queue }, value: waiting },
      ]),
      { name: 'outbox_relay_connected', labels: {}, value: Number(connected) },
      { name: 'outbox_relay_leading', labels: {}, value: Number(leading) },
      { name: 'outbox_relay_lane', labels: { lane: kind, reason }, value: 1 },
    ];
  }
}
