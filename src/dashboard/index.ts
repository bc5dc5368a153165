export { type NodeListener, nodeListener } from '../http/node-listener.ts';
export type { RequestConnection } from '../http/serve.ts';
export type { AuthenticationOptions, DashboardRole, DashboardUser } from './authentication.ts';
export { createDashboard, type Dashboard, type DashboardOptions } from './dashboard.ts';
export type { RedactionRules } from './redaction.ts';
export { type DashboardServer, type ServeDashboardOptions, serveDashboard } from './serve-dashboard.ts';
