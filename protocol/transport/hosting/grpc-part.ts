/** A grpc-js server without a port of its own: connections are handed to it. Members and strangers have each their own. */
import { Server, ServerCredentials } from '@grpc/grpc-js'
import { MAX_JOIN_BYTES, MAX_MESSAGE_BYTES, MAX_REQUEST_BYTES } from '../../limits.ts'
import { type BrokerServiceDeps, brokerService } from '../broker-service.ts'
import { type StreamLimits, limitResets, streamLimiter } from '../limit-streams.ts'
import { RAW_SERVICE } from '../raw-service.ts'

/** What is opened on one connection: a member comes back with two streams at a time, seconds apart. */
const MEMBER_STREAMS: StreamLimits = { burst: 50, refillMs: 200 }
/** A stranger joins, and perhaps asks once more. */
const STRANGER_STREAMS: StreamLimits = { burst: 4, refillMs: 10_000 }

export interface PartLimits {
  /** As ServerLimits has them. */
  readonly maxStreamsPerConnection: number
  readonly keepaliveMs: number
  readonly keepaliveTimeoutMs: number
  readonly idleMs: number
}

type GrpcOptions = NonNullable<ConstructorParameters<typeof Server>[0]>

export type GrpcPart = ReturnType<typeof grpcPart>

export function membersPart(deps: BrokerServiceDeps, limits: PartLimits): GrpcPart {
  return grpcPart(deps, memberOptions(limits), MEMBER_STREAMS)
}

export function strangersPart(deps: BrokerServiceDeps, limits: PartLimits): GrpcPart {
  return grpcPart(deps, strangerOptions(limits), STRANGER_STREAMS)
}

function grpcPart(deps: BrokerServiceDeps, options: GrpcOptions, streams: StreamLimits) {
  const limiter = streamLimiter(streams, () => deps.clock.monotonic(), deps.drop)
  const grpc = new Server({ ...options, interceptors: [limiter] })
  limitResets(grpc, streams)
  grpc.addService(RAW_SERVICE, brokerService(deps))
  return { grpc, injector: grpc.createConnectionInjector(ServerCredentials.createInsecure()) }
}

function memberOptions(limits: PartLimits): GrpcOptions {
  return {
    'grpc.max_receive_message_length': MAX_REQUEST_BYTES,
    'grpc.max_send_message_length': MAX_MESSAGE_BYTES,
    'grpc.max_concurrent_streams': limits.maxStreamsPerConnection,
    'grpc.keepalive_time_ms': limits.keepaliveMs,
    'grpc.keepalive_timeout_ms': limits.keepaliveTimeoutMs,
    'grpc.max_connection_idle_ms': limits.idleMs,
    'grpc.enable_channelz': 0,
  }
}

function strangerOptions(limits: PartLimits): GrpcOptions {
  return {
    ...memberOptions(limits),
    'grpc.max_receive_message_length': MAX_JOIN_BYTES,
    'grpc.max_concurrent_streams': 2,
    // Megabytes.
    'grpc-node.max_session_memory': 1,
  }
}
