/** A rule's words, read one after the other: for the tracer. */
export class RuleText {
  readonly #words: readonly string[]
  readonly #rule: string
  #at = 0

  constructor(rule: string) {
    this.#rule = rule
    // Braces and commas are words of their own; what is in quotes is one word.
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

  /** Steps over these words if they are next. */
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

  /** Steps to behind the word. */
  skipUntil(word: string): void {
    while (this.word() !== word);
  }

  /** `a`, `a,b` or `{ a, b . c }` */
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

  /** `{ 0 : goto a, 1 : goto b }` */
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
