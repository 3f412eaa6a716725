/** DNS messages: constants of the wire format, queries, responses (RFC 1035, RFC 6891). */
export { QueryReader, questionName, sameQuestion } from './query.ts'
export {
  CLASS_IN,
  type CompiledAnswer,
  HEADER_LENGTH,
  MAX_TCP_SIZE,
  MAX_UDP_SIZE,
  RCODE,
  TYPE_A,
  TYPE_AAAA,
  TYPE_ANY,
  TYPE_NS,
  TYPE_SOA,
  TYPE_SRV,
  TYPE_TXT,
  type Transport,
  byte,
  uint16,
} from './wire.ts'
export { cutAnswer, extendedError, writeAnswer, writeCode } from './write-response.ts'
