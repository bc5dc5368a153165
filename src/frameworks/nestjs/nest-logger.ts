import { Logger as NestLogger } from '@nestjs/common';
import type { Logger } from '../../telemetry/logging.ts';

/** Logs through Nest's own logger. */
export function nestLogger(): Logger {
  const logger = new NestLogger('Postcommit');
  const line = (fields: object, message: string) =>
    Object.keys(fields).length === 0 ? message : `${message} ${JSON.stringify(fields)}`;
  return {
    debug: (fields, message) => logger.debug(line(fields, message)),
    info: (fields, message) => logger.log(line(fields, message)),
    warn: (fields, message) => logger.warn(line(fields, message)),
    error: (fields, message) => logger.error(line(fields, message)),
  };
}
