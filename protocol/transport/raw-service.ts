/**
 * The gRPC service with raw bytes as messages. codec/messages-codec.ts decodes them, so that an invalid message is
 * refused with the name of the field instead of breaking the call.
 */
import type { ServiceDefinition } from '@grpc/grpc-js'
import { BrokerService } from '../gen/broker.ts'

export function identity(bytes: Buffer): Buffer {
  return bytes
}

/**
 * Copies a request that lives as long as its stream. The few bytes that grpc-js provides would keep a 64 KiB pool in
 * memory.
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

/** Returns the same bytes as a Buffer without copying, as grpc-js requires. */
export function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
}

/**
 * Cancels a call in the next iteration of the event loop. grpc-js loses a cancellation in the iteration in which the
 * call began, and the stream would stay open at the broker.
 */
export function cancelSoon(call: { cancel(): void }): void {
  setImmediate(() => call.cancel())
}
