/** Datagrams over a WebSocket, between a gateway and a relay on port 443: frames, queue, connection. */
export { DatagramQueue, type DatagramQueueInit, MAX_WAITING_BYTES, MAX_WAIT_MS } from './datagram-queue.ts'
export {
  type Challenge,
  type Datagram,
  FRAMES_VERSION,
  type Frame,
  KEY_BYTES,
  MAX_DATAGRAM_BYTES,
  MAX_FRAME_BYTES,
  MAX_TICKET_BYTES,
  MAX_WANTS,
  NONCE_BYTES,
  type Proof,
  RELAY_REFUSALS,
  REPLACED_CODE,
  type RelayRefusal,
  SUBPROTOCOL,
  decodeFrame,
  encodeFrame,
  endName,
  isProofMac,
  makeInstance,
  proofMac,
} from './frames.ts'
export { type LoopbackPort, type LoopbackPortInit, openLoopbackPort } from './loopback-port.ts'
export type { RelayConnection, RelayConnectionInit } from './relay-connection.ts'
export type { DatagramServer, DatagramServerInit, PeerEvents, PeerSocket } from './datagram-server.ts'
