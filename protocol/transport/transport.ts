/** The gRPC client and server between members and broker. */
export type { FailedCall } from './broker-service.ts'
export { DEFAULT_CONNECTION_LIMITS } from './connections.ts'
export { reasonField } from './error-reason.ts'
export { connectBroker, connectForJoin } from './grpc-client.ts'
export { type BrokerServer, type HostedClusterset, type ServerTls, serveBroker } from './grpc-server.ts'
export { limitHandshake } from './limit-handshake.ts'
export { probeServer } from './probe-server.ts'
export { cancelSoon } from './raw-service.ts'
