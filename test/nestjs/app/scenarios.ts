import { asyncOptions } from './scenario-async-options.js';
import { badInput } from './scenario-bad-input.js';
import { health } from './scenario-health.js';
import { microservice } from './scenario-microservice.js';
import { orders } from './scenario-orders.js';
import { overrides } from './scenario-overrides.js';
import { prisma } from './scenario-prisma.js';
import { scopes } from './scenario-scopes.js';
import { shutdown } from './scenario-shutdown.js';
import { wrapped } from './scenario-wrapped.js';

export const scenarios: Record<string, () => Promise<void>> = {
  asyncOptions,
  badInput,
  health,
  microservice,
  orders,
  overrides,
  prisma,
  scopes,
  shutdown,
  wrapped,
};
