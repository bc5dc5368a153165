import { requireCatalogue } from '../catalogue/catalogue.ts';
import { PostcommitError } from '../errors.ts';
import { extractSchemas } from '../schema/extract-schemas.ts';
import type { SchemaFile } from '../schema/schema-file.ts';
import type { Context } from './context.ts';

/** The schemas of the events in the config file, and where that file is. */
export async function readCatalogue({ settings }: Context): Promise<{ file: string; schemas: SchemaFile }> {
  const found = await settings.configFile();
  if (found === undefined) throw new PostcommitError('POSTCOMMIT_E_NO_CONFIG');
  const { events } = found.config;
  if (events === undefined) {
    throw new PostcommitError(
      'POSTCOMMIT_E_BAD_CONFIG',
      `${found.file}: It has no events. Add events: defineEvents({ ... }).`,
    );
  }
  try {
    requireCatalogue(events, 'defineConfig');
  } catch {
    throw new PostcommitError('POSTCOMMIT_E_BAD_CONFIG', `${found.file}: events must be what defineEvents() returns.`);
  }
  return { file: found.file, schemas: extractSchemas(events) };
}
