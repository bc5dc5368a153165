export { OutboxAdmin } from '../../admin/admin.ts';
export type { OnceResult } from '../../inbox/inbox.ts';
export { Inbox } from '../../inbox/inbox.ts';
export { Reject } from '../../relay/event/reject.ts';
export { Relay } from '../../relay/relay.ts';
export type { ClientProxyLike, ClientProxyOptions } from './client-proxy-publisher.ts';
export { ClientProxyPublisher, ClientProxyReference, clientProxy } from './client-proxy-publisher.ts';
export type { NestDestinations, PublisherReference } from './destinations.ts';
export { OutboxEventContext } from './event-context.ts';
export type { OnOutboxEventOptions } from './handler-marks.ts';
export type { HealthLimits, HealthResult } from './health-indicator.ts';
export { PostcommitHealthIndicator } from './health-indicator.ts';
export { POSTCOMMIT_OPTIONS, PostcommitModule } from './module.ts';
export type { NestarcOptions } from './nestarc-options.ts';
export type { HandlerDecorator } from './on-outbox-event.ts';
export { OnOutboxEvent } from './on-outbox-event.ts';
export type {
  NestRelayOptions,
  PostcommitModuleAsyncOptions,
  PostcommitModuleOptions,
  PostcommitOptionsFactory,
} from './options.ts';
export type { EmitInTransaction, EmitManyEntry } from './outbox.ts';
export { Outbox, Outbox as OutboxEmitter } from './outbox.ts';
export type {
  Aggregate,
  AggregateEvent,
  EmitOptions,
  EmitOptionsWithAggregate,
  EventClass,
} from './outbox-event.ts';
export { OutboxEvent } from './outbox-event.ts';
export { RecordingOutbox } from './recording-outbox.ts';
export { RelayRunner } from './relay-runner.ts';
