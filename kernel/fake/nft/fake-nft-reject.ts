/** What `reject` answers, as rules say it: for the tracer, and for what the fake refuses as nft does. */
import type { RuleText } from './fake-nft-rule-text.ts'

/**
 * Reads what follows the word `reject`: `tcp reset`, or the name of an ICMP error, such as host-unreachable.
 * Undefined where the rule is not for a packet of that protocol: nft itself puts a match for TCP into rules that reset.
 */
export function rejectAnswer(text: RuleText, protocol: string): string | undefined {
  if (!text.take('with')) return 'port-unreachable'
  if (text.take('tcp', 'reset')) return protocol === 'tcp' ? 'tcp reset' : undefined
  if (!text.take('icmp') && !text.take('icmpv6') && !text.take('icmpx')) throw text.unknown()
  text.take('type')
  return text.word()
}

const NO_ANSWER = /(?<!\S)reject with (?!tcp reset$|icmp(?:v6|x)? )/
/** A selector of the protocol that is no part of a concatenation: nft looks at these, and not at what is denied. */
const RESET_WITHOUT_TCP =
  /(?<!\S)(?:meta l4proto (?!tcp |!=|\.)|(?:udp|icmp|icmpv6) (?:type|[sd]port) ).*reject with tcp reset$/

/** Why nft takes no rule with such an answer; undefined where it does. */
export function rejectFault(rule: string): string | undefined {
  if (NO_ANSWER.test(rule)) return 'reject answers with tcp reset or an ICMP error'
  return RESET_WITHOUT_TCP.test(rule) ? 'you cannot use tcp reset with this protocol' : undefined
}
