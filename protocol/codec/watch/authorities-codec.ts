/** What the broker says of its authorities, between bytes and broker-api.ts. */
import type { Authorities } from '../../broker-api.ts'
import * as wire from '../../gen/broker.ts'
import { HASH_BYTES, MAX_CA_BUNDLE } from '../../limits.ts'
import * as check from '../codec-checks.ts'

export function authoritiesToWire({ bundle, signing, withinMs }: Authorities): wire.WatchMessage_Authorities {
  return { bundle: bundle.map(fromHex), signing: fromHex(signing), withinMs }
}

/** Throws CodecError. */
export function authoritiesFromWire({ bundle, signing, withinMs }: wire.WatchMessage_Authorities): Authorities {
  return {
    bundle: check.list(bundle, 'bundle', MAX_CA_BUNDLE, hex),
    signing: hex(signing, 'signing'),
    withinMs: check.count(withinMs, 'withinMs'),
  }
}

function fromHex(text: string): Buffer {
  return Buffer.from(text, 'hex')
}

function hex(value: Uint8Array, path: string): string {
  return Buffer.from(check.bytes(value, path, HASH_BYTES, HASH_BYTES)).toString('hex')
}
