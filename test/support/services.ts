import type { TestContext } from 'vitest';
import { type PrivateService, type PrivateServiceOptions, startService } from '../../services/private-service.ts';
import { services } from '../../services/registry.ts';
import { NotAvailable, type ServiceName } from '../../services/service.ts';
import { recordServer } from './servers-used.ts';

/**
 * A server for this test alone, removed with it. Where the machine cannot have one the test is skipped and the summary
 * says why; with CI=true it fails.
 */
export async function privateService(
  name: ServiceName,
  context: TestContext,
  options?: PrivateServiceOptions,
): Promise<PrivateService> {
  try {
    const service = await startService(name, options);
    context.onTestFinished(() => service.remove());
    if (service.version !== undefined) recordServer(`${service.title} ${service.version}`);
    return service;
  } catch (error) {
    if (!(error instanceof NotAvailable) || process.env.CI === 'true') throw error;
    recordServer(`no ${services[name].title} (${error.message})`);
    return context.skip(error.message);
  }
}
