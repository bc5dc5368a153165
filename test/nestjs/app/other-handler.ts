import { Injectable } from '@nestjs/common';
import { OnOutboxEvent } from 'postcommit/nestjs';

/** For a scenario about events without a handler: a relay without any does not start. */
@Injectable()
export class OtherHandler {
  @OnOutboxEvent('other', { name: 'other' })
  handle() {}
}
