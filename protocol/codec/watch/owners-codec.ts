/** What has changed in the lists of owners, between bytes and broker-api.ts. */
import type { WatchMessage } from '../../broker-api.ts'
import type { WatchMessage_OwnersChanged as Wire } from '../../gen/broker.ts'
import { MAX_CLUSTERS, MAX_NAME } from '../../limits.ts'
import * as check from '../codec-checks.ts'

type OwnersChanged = Extract<WatchMessage, { t: 'ownersChanged' }>

export function ownersToWire({ revision, complete, departed }: OwnersChanged): Wire {
  return {
    revision,
    completeAdded: [...complete.added],
    completeRemoved: [...complete.removed],
    departedAdded: [...departed.added],
    departedRemoved: [...departed.removed],
  }
}

export function ownersFromWire(value: Wire): OwnersChanged {
  const ids = (field: Exclude<keyof Wire, 'revision'>): string[] =>
    check.texts(value[field], field, MAX_CLUSTERS, MAX_NAME)
  return {
    t: 'ownersChanged',
    revision: check.count(value.revision, 'revision'),
    complete: { added: ids('completeAdded'), removed: ids('completeRemoved') },
    departed: { added: ids('departedAdded'), removed: ids('departedRemoved') },
  }
}
