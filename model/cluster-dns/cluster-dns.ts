/**
 * The public interface of this room: the Corefile of a CoreDNS, Sealane's block in it, and what `sealane join` wired in
 * the cluster's own DNS. It is here and not in cli/ because the agent mends it too.
 */
export {
  type ExistingServer,
  type ForwardBlock,
  type ListenOptions,
  ADDITION_KEY,
  BLOCK_PATTERN,
  addForwardBlock,
  claimsOn,
  formatForwardBlock,
  hasForwardBlock,
  placeOfText,
  reloadsItself,
  removeForwardBlock,
  topImports,
} from './forward-block.ts'
export { CorefileError, parseCorefile } from './parse-corefile.ts'
export {
  ANNOTATION_WIRED_DNS,
  type Mending,
  type WiredDns,
  type WiredMap,
  formatWiredDns,
  planMending,
  readWiredDns,
} from './wired-dns.ts'
