/** Reads the words of a rule one after the other, for the tracer. */

export class RuleText {
  readonly #words: readonly string[]
  readonly #rule: string
  #at = 0

  constructor(rule: string) {
    this.#rule = rule
    // Braces and commas are separate words. A quoted string is one word.
    this.#words = rule.match(/"[^"]*"|[{},]|[^\s{},"]+/g) ?? []
  }

  get done(): boolean {
    return this.#at >= this.#words.length
  }

  /** The next word, '' at the end. */
  get peek(): string {
    return this.peekAt(0)
  }

  peekAt(ahead: number): string {
    return this.#words[this.#at + ahead] ?? ''
  }

  /** Skips these words if they come next. Returns true if they did. */
  take(...words: readonly string[]): boolean {
    if (words.some((word, i) => this.peekAt(i) !== word)) return false
    this.#at += words.length
    return true
  }

  word(): string {
    if (this.done) throw this.unknown()
    const word = this.peek
    this.#at += 1
    return word
  }

  /** Skips to the word after `word`. */
  skipUntil(word: string): void {
    while (this.word() !== word);
  }

  /** Reads `a`, `a,b` or `{ a, b . c }`. */
  list(): readonly string[] {
    if (!this.take('{')) {
      const items = [this.word()]
      while (this.take(',')) items.push(this.word())
      return items
    }
    const items: string[] = []
    let item: string[] = []
    for (let word = this.word(); word !== '}'; word = this.word()) {
      if (word !== ',') item.push(word)
      else {
        items.push(item.join(' '))
        item = []
      }
    }
    return [...items, item.join(' ')]
  }

  /** Reads `{ 0 : goto a, 1 : goto b }`. */
  pairs(): ReadonlyMap<string, string> {
    return new Map(
      this.list().map((item) => {
        const [key = '', value = ''] = item.split(' : ')
        return [key, value]
      }),
    )
  }

  unknown(): Error {
    return new Error(`the tracer does not know ${JSON.stringify(this.peek)} in: ${this.#rule}`)
  }
}

// Reject statements, for the tracer and for what the fake refuses as nft does.

/**
 * Reads what follows the word `reject`: `tcp reset`, or the name of an ICMP error such as host-unreachable. Undefined
 * if the rule does not match packets of the protocol: nft itself adds a match for TCP to rules that reset.
 */
export function rejectAnswer(text: RuleText, protocol: string): string | undefined {
  if (!text.take('with')) return 'port-unreachable'
  if (text.take('tcp', 'reset')) return protocol === 'tcp' ? 'tcp reset' : undefined
  if (!text.take('icmp') && !text.take('icmpv6') && !text.take('icmpx')) throw text.unknown()
  text.take('type')
  return text.word()
}

const NO_ANSWER = /(?<!\S)reject with (?!tcp reset$|icmp(?:v6|x)? )/
/** Matches a protocol selector that is not part of a concatenation. nft checks only these, and ignores negated ones. */
const RESET_WITHOUT_TCP =
  /(?<!\S)(?:meta l4proto (?!tcp |!=|\.)|(?:udp|icmp|icmpv6) (?:type|[sd]port) ).*reject with tcp reset$/

/** Returns why nft refuses the reject statement of a rule. Undefined if nft accepts it. */
export function rejectFault(rule: string): string | undefined {
  if (NO_ANSWER.test(rule)) return 'reject answers with tcp reset or an ICMP error'
  return RESET_WITHOUT_TCP.test(rule) ? 'you cannot use tcp reset with this protocol' : undefined
}

/** The names that nft uses for types of ICMP messages (1.0.6, `nft describe icmp type`), for the tracer. */

const ICMP_TYPES: Readonly<Record<'icmp' | 'icmpv6', Readonly<Record<string, number>>>> = {
  icmp: {
    'echo-reply': 0,
    'destination-unreachable': 3,
    'source-quench': 4,
    redirect: 5,
    'echo-request': 8,
    'router-advertisement': 9,
    'router-solicitation': 10,
    'time-exceeded': 11,
    'parameter-problem': 12,
    'timestamp-request': 13,
    'timestamp-reply': 14,
  },
  icmpv6: {
    'destination-unreachable': 1,
    'packet-too-big': 2,
    'time-exceeded': 3,
    'parameter-problem': 4,
    'echo-request': 128,
    'echo-reply': 129,
    'mld-listener-query': 130,
    'mld-listener-report': 131,
    'mld-listener-done': 132,
    'nd-router-solicit': 133,
    'nd-router-advert': 134,
    'nd-neighbor-solicit': 135,
    'nd-neighbor-advert': 136,
    'nd-redirect': 137,
  },
}

/** True if the type in a rule (a name or a number) is the type of a packet. */
export function isIcmpType(protocol: 'icmp' | 'icmpv6', said: string, type: number): boolean {
  return said === String(type) || ICMP_TYPES[protocol][said] === type
}
