/**
 * The service as paths with raw bytes: decoding is ours (messages-codec.ts), so that what cannot be decoded is
 * answered with the field's name instead of a broken call.
 */
import type { ServiceDefinition } from '@grpc/grpc-js'
import { BrokerService } from '../gen/broker.ts'

export function identity(bytes: Buffer): Buffer {
  return bytes
}

/**
 * A request that lasts as long as its stream, as bytes of its own: what grpc-js gives is a few bytes in 64 KiB of a pool,
 * and holds all of them.
 */
function kept(bytes: Buffer): Buffer {
  const own = Buffer.allocUnsafeSlow(bytes.length)
  own.set(bytes)
  return own
}

type MethodName = keyof typeof BrokerService

function raw(name: MethodName): ServiceDefinition[string] {
  const { path, requestStream, responseStream } = BrokerService[name]
  return {
    path,
    requestStream,
    responseStream,
    requestSerialize: identity,
    requestDeserialize: requestStream ? identity : kept,
    responseSerialize: identity,
    responseDeserialize: identity,
  }
}

export const RAW_SERVICE = {
  join: raw('join'),
  renew: raw('renew'),
  leave: raw('leave'),
  publish: raw('publish'),
  watch: raw('watch'),
} satisfies ServiceDefinition

export function methodPath(name: MethodName): string {
  return BrokerService[name].path
}

/** The same bytes as a Buffer, without copying: what grpc-js wants to write. */
export function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
}

/**
 * Cancels a call of ours, in the next turn of the event loop: grpc-js loses a cancellation that comes in the turn in
 * which the call began, and the stream would then stay open at the broker.
 */
export function cancelSoon(call: { cancel(): void }): void {
  setImmediate(() => call.cancel())
}
