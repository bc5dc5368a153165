export { fromPg } from './adapters/pg.ts';
export { OutboxAdmin } from './admin/admin.ts';
export type { AuditFilter, Operator } from './admin/audit.ts';
export type { CancelOptions, CancelResult, ReplayOptions, ReplayResult, UndeliveredResult } from './admin/bulk.ts';
export type { BulkOptions, BulkResult, DuplicateId } from './admin/chunks.ts';
export type { PauseOptions } from './admin/destinations.ts';
export type { CheckName } from './admin/doctor/checks.ts';
export type { Diagnosis, DoctorOptions, Finding } from './admin/doctor/doctor.ts';
export type { CheckFinding, Severity } from './admin/doctor/finding.ts';
export type { DoctorLimits } from './admin/doctor/limits.ts';
export type { EditedEvent } from './admin/editing.ts';
export type {
  DeadLetterFilter,
  DeadLetterSelector,
  DeadLetterTarget,
  EventFilter,
  ListFilter,
  ReplayTarget,
  SearchFilter,
  UndeliveredTarget,
} from './admin/filters.ts';
export type { ForgetOptions, ForgetResult } from './admin/forgotten-targets.ts';
export type { OutboxHealth, OutboxHealthLimits } from './admin/health.ts';
export type { CountOptions } from './admin/inspector.ts';
export type { Conversion, ConversionStep, ConvertOptions, PatienceOptions } from './admin/partitions.ts';
export { PartitionAdmin } from './admin/partitions.ts';
export type { PruneOptions, PruneResult } from './admin/pruning.ts';
export type { TriggerOptions } from './admin/schedules.ts';
export { ScheduleAdmin } from './admin/schedules.ts';
export type {
  DefinedEvent,
  EventCatalogue,
  EventDefinition,
  EventTypeOf,
  PayloadInput,
  PayloadOutput,
  SchemaOf,
  Upcast,
} from './catalogue/catalogue.ts';
export { defineEvents } from './catalogue/catalogue.ts';
export type { NewestPayload, StoredPayload, UnknownVersions } from './catalogue/upcast.ts';
export { readEvent } from './catalogue/upcast.ts';
export type { OutboxConfig, PostcommitConfig } from './config.ts';
export { defineConfig } from './config.ts';
export type {
  ConsumedEvent,
  ConsumerCounters,
  ConsumerEvents,
  ConsumerState,
  ConsumerStats,
} from './consumers/consumer-events.ts';
export type {
  CommonConsumerOptions,
  ConsumerContext,
  ConsumerOptions,
  Handling,
  Reading,
  TransactionalConsumerContext,
} from './consumers/consumer-options.ts';
export type { EventConsumer } from './consumers/event-consumer.ts';
export type { EventToConsume } from './consumers/newest-event.ts';
export type { SequenceFinding } from './consumers/sequence-watch.ts';
export type { ConnectionConfig, ConnectionOptions } from './database/connection-options.ts';
export type { Executor, Statement } from './database/executor.ts';
export type { GrantsOptions } from './database/grants.ts';
export { grantsSql } from './database/grants.ts';
export type { MigrateResult } from './database/migrate.ts';
export { migrate, migrationSql } from './database/migrate.ts';
export type { MigrateOptions, MigrationSqlOptions, PartitionChoice } from './database/migrate-options.ts';
export type { Emit, EmittedOnce } from './emit/emit-function.ts';
export type { EventToEmit, OutboxEvent } from './emit/event.ts';
export { createOutbox, Outbox } from './emit/outbox.ts';
export type {
  OpenTransaction,
  OutboxDatabase,
  PipelinedTransactions,
  TransactionOptions,
} from './emit/outbox-database.ts';
export type { OutboxOptions } from './emit/outbox-options.ts';
export type { ErrorCode } from './errors.ts';
export { errorCodes, PostcommitError } from './errors.ts';
export type { InboxConsumer, OnceResult, OutsideContext } from './inbox/inbox.ts';
export { createInbox, Inbox } from './inbox/inbox.ts';
export type { InboxOptions, InboxPruneOptions, OutsideOptions } from './inbox/inbox-options.ts';
export type { ProcessedEvent } from './outbox/consuming/record-processed.ts';
export type { DeadReason } from './outbox/delivering/fail.ts';
export type { PartitionInfo, Partitioning, PartitionState } from './outbox/maintaining/list-partitions.ts';
export type { PartitionUnit } from './outbox/maintaining/partition.ts';
export type { Rotation } from './outbox/maintaining/rotate.ts';
export type { KnownUnqueued, OutboxCounts } from './outbox/operating/count.ts';
export type { DeadLetterCount } from './outbox/operating/count-dead-letters.ts';
export type { DeadLetterFacts, Delivery, EventDetails, FailedAttempt, PayloadEdit } from './outbox/operating/find.ts';
export type { DeadLetterGroup } from './outbox/operating/group-dead-letters.ts';
export type { EventStatus, EventSummary, ListOrder } from './outbox/operating/list.ts';
export type { AuditEntry } from './outbox/operating/list-audit.ts';
export type { BlockedAggregate } from './outbox/operating/list-blocked.ts';
export type { DeadLetter } from './outbox/operating/list-dead-letters.ts';
export type { DestinationInfo } from './outbox/operating/list-destinations.ts';
export type { MaintenanceInfo, MaintenanceLeader, MaintenanceTaskInfo } from './outbox/operating/list-maintenance.ts';
export type { MissingTarget } from './outbox/operating/list-missing-targets.ts';
export type { HandlerProgress, RunningHandler } from './outbox/operating/list-progress.ts';
export type { QueueInfo } from './outbox/operating/list-queues.ts';
export type { RelayInfo } from './outbox/operating/list-relays.ts';
export type { ScheduleDeclaration, ScheduleInfo } from './outbox/operating/list-schedules.ts';
export type { UnhandledType } from './outbox/operating/list-unhandled-types.ts';
export type { LatencySample } from './outbox/operating/sample-latency.ts';
export type {
  Message,
  Publisher,
  PublisherCapabilities,
  PublisherParts,
  PublishOutcome,
} from './publishers/publisher.ts';
export type { DestinationSettings, Destinations } from './relay/deliver/destinations/destination-options.ts';
export type {
  BatchContext,
  BatchHandler,
  BatchOutcome,
  EventToHandle,
  Handler,
  HandlerContext,
  HandlerPolicy,
  Handlers,
  HandlersOf,
  HandlerWithPolicy,
} from './relay/deliver/handlers.ts';
export type { Route, RouteFunction } from './relay/deliver/router.ts';
export type { EventFacts } from './relay/event/event-facts.ts';
export { Reject } from './relay/event/reject.ts';
export type { RetryExponential, RetryPolicy, RetrySchedule } from './relay/event/retry-policy.ts';
export type { LaneState } from './relay/lane/lane-state.ts';
export type { MaintenanceRun } from './relay/maintenance/maintenance.ts';
export type { MaintenanceOptions, MaintenanceTask } from './relay/maintenance/maintenance-options.ts';
export type { RelayHttpOptions, RelayOptions } from './relay/options.ts';
export type { RelayState, RelayStats } from './relay/relay.ts';
export { createRelay, Relay } from './relay/relay.ts';
export type { RunOnceOptions, RunOnceResult } from './relay/run-once-options.ts';
export type { CatchUp } from './relay/schedules/cron.ts';
export type { ScheduleOptions, Schedules } from './relay/schedules/schedule-options.ts';
export type { EventOfTick, ScheduledEvent, ScheduleTick } from './relay/schedules/scheduled-event.ts';
export type { Counters } from './relay/telemetry/counters.ts';
export type { LifecycleEvents } from './relay/telemetry/lifecycle.ts';
export type { ConfluentJsonOptions } from './schema/confluent-json.ts';
export { confluentJson } from './schema/confluent-json.ts';
export type { Logger } from './telemetry/logging.ts';
export type { TraceHeaders } from './telemetry/remote-context.ts';
export { withRemoteContext } from './telemetry/remote-context.ts';
export type { CloudEventsOptions } from './wire/cloud-events.ts';
export { cloudEvents } from './wire/cloud-events.ts';
export type { DeliveredEvent } from './wire/delivered-event.ts';
export { envelope } from './wire/envelope.ts';
export { raw } from './wire/raw.ts';
export { readMessage } from './wire/read-message.ts';
export type { IncomingMessage, ReceivedEvent } from './wire/received-event.ts';
export type { Serialized, Serializer, WireBinding } from './wire/serializer.ts';
export { Unavailable } from './wire/unavailable.ts';
