/** Encoders and decoders of all messages and records. */
export { CodecError, count, list, parseWire, text, texts } from './codec-checks.ts'
export { canonicalJson, contentHash, memberKey, memberKeyText, setHash } from './content-hash.ts'
export {
  decodeJoinLook,
  decodeJoinRequest,
  decodeJoinResponse,
  decodePublishMessage,
  decodePublishReply,
  decodeRenewRequest,
  decodeRenewResponse,
  decodeWatchMessage,
  decodeWatchRequest,
  encodeJoinLook,
  encodeJoinRequest,
  encodeJoinResponse,
  encodePublishMessage,
  encodePublishReply,
  encodeRenewRequest,
  encodeRenewResponse,
  encodeWatchMessage,
  encodeWatchRequest,
  fits,
  splitBatch,
  splitNeed,
} from './messages-codec.ts'
export {
  bodyFromBytes,
  bodyToBytes,
  checkMemberRecord,
  decodeRecordEvent,
  decodeStoredRecord,
  encodePut,
  encodeRecordEvent,
  encodeStoredRecord,
  memberRecordBytes,
  storedFromWire,
  storedToWire,
} from './records-codec.ts'
export { pack, packQuickly, packWell } from './watch-codec.ts'
