/**
 * A Corefile as a list of what is at its top level: server blocks, snippets and imports, each with its place in the
 * text. The grammar is that of github.com/coredns/caddy, caddyfile/parse.go, less what an edit cannot be safe in:
 * blocks without braces, names without a block, and a last brace that CoreDNS would forgive.
 */
import { type Comment, CorefileError, type Token, tokenize } from './corefile-tokens.ts'

export interface Directive {
  readonly name: string
  /** The name and all that belongs to it, braces included. */
  readonly tokens: readonly Token[]
}

interface Span {
  readonly line: number
  readonly start: number
  readonly end: number
}

export type CorefileItem =
  | (Span & { readonly kind: 'server'; readonly keys: readonly string[]; readonly directives: readonly Directive[] })
  | (Span & { readonly kind: 'snippet'; readonly name: string; readonly tokens: readonly Token[] })
  | (Span & { readonly kind: 'import'; readonly pattern: string })
export type ServerBlock = Extract<CorefileItem, { kind: 'server' }>

export interface Corefile {
  readonly items: readonly CorefileItem[]
  readonly comments: readonly Comment[]
}

/** Throws CorefileError, and nothing else, for what it does not understand. */
export function parseCorefile(text: string): Corefile {
  const { tokens, comments } = tokenize(text)
  return { items: new Parser(tokens).items(), comments }
}

class Parser {
  readonly #tokens: readonly Token[]
  #at = 0

  constructor(tokens: readonly Token[]) {
    this.#tokens = tokens
  }

  items(): CorefileItem[] {
    const items: CorefileItem[] = []
    while (this.#token() !== undefined) {
      const item = this.#item()
      if (item.kind === 'snippet' && items.some((other) => other.kind === 'snippet' && other.name === item.name)) {
        throw new CorefileError(item.line, `a second snippet ${quote(item.name)}`)
      }
      items.push(item)
    }
    return items
  }

  #token(): Token | undefined {
    return this.#tokens[this.#at]
  }

  /** Whether the word at the cursor is the first of its line. */
  #firstOfLine(): boolean {
    const before = this.#tokens[this.#at - 1]
    const here = this.#token()
    return before === undefined || here === undefined || before.lastLine < here.line
  }

  #lineOfLast(): number {
    return this.#tokens[Math.min(this.#at, this.#tokens.length - 1)]?.line ?? 1
  }

  #item(): CorefileItem {
    const first = this.#token() as Token
    if (first.text === 'import' && this.#firstOfLine()) {
      const pattern = this.#importPattern()
      return { kind: 'import', pattern, ...this.#span(first) }
    }
    const keys = this.#keys()
    const [key] = keys
    if (keys.length === 1 && key?.startsWith('(') === true && key.endsWith(')')) {
      const tokens = this.#snippetTokens()
      return { kind: 'snippet', name: key.slice(1, -1), tokens, ...this.#span(first) }
    }
    return { kind: 'server', keys, directives: this.#directives(), ...this.#span(first) }
  }

  #span(first: Token): Span {
    return { line: first.line, start: first.start, end: this.#tokens[this.#at - 1]?.end ?? first.end }
  }

  /** `import PATTERN`, the cursor on `import`; leaves it behind. */
  #importPattern(): string {
    const line = this.#lineOfLast()
    this.#at += 1
    const pattern = this.#token()
    if (pattern === undefined || this.#firstOfLine()) throw new CorefileError(line, 'import without a file or snippet')
    this.#at += 1
    if (!this.#firstOfLine()) throw new CorefileError(line, 'import takes one file or snippet')
    return pattern.text
  }

  /**
   * The names before a block, up to and including its opening brace, which may be in the next line. A comma lets
   * the names go on there.
   */
  #keys(): string[] {
    const keys: string[] = []
    const { line } = this.#token() as Token
    for (let more = true; ; this.#at += 1) {
      const token = this.#token()
      if (token === undefined) throw new CorefileError(line, `${quote(keys.join(' '))} has no block in braces`)
      if (token.text === '{') {
        if (more) throw new CorefileError(token.line, 'a name is missing before {')
        this.#at += 1
        return keys
      }
      if (!more && this.#firstOfLine()) {
        throw new CorefileError(line, `${quote(keys.join(' '))} has no block in braces; put one around its plugins`)
      }
      if (token.text === 'import' && this.#firstOfLine()) throw new CorefileError(token.line, 'import between names')
      more = token.text.endsWith(',')
      const key = more ? token.text.slice(0, -1) : token.text
      if (key === '' || key === '}') throw new CorefileError(token.line, `${quote(token.text)} where a name should be`)
      keys.push(key)
    }
  }

  /** All up to the closing brace of a snippet, without it. */
  #snippetTokens(): Token[] {
    const line = this.#tokens[this.#at - 1]?.line ?? 1
    const tokens: Token[] = []
    for (let depth = 1; ; this.#at += 1) {
      const token = this.#token()
      if (token === undefined) throw new CorefileError(line, 'the brace that opens here is not closed')
      if (token.text === '{') depth += 1
      if (token.text === '}') depth -= 1
      if (depth === 0) {
        this.#at += 1
        return tokens
      }
      tokens.push(token)
    }
  }

  /** The plugins of a server block and its closing brace. */
  #directives(): Directive[] {
    const line = this.#tokens[this.#at - 1]?.line ?? 1
    const directives: Directive[] = []
    for (;;) {
      const token = this.#token()
      if (token === undefined) throw new CorefileError(line, 'the brace that opens here is not closed')
      if (token.text === '}') {
        this.#at += 1
        return directives
      }
      if (token.text === 'import') {
        const from = this.#at
        this.#importPattern()
        directives.push({ name: 'import', tokens: this.#tokens.slice(from, this.#at) })
      } else directives.push(this.#directive(token))
    }
  }

  /** One plugin: to the end of its line, or of the braces that it opens. */
  #directive(name: Token): Directive {
    const from = this.#at
    let depth = 0
    for (this.#at += 1; ; this.#at += 1) {
      const token = this.#token()
      if (token === undefined) {
        if (depth > 0) throw new CorefileError(name.line, `the braces of ${quote(name.text)} are not closed`)
        break
      }
      if (token.text === '{') depth += 1
      else if (depth === 0 && this.#firstOfLine()) break
      else if (token.text === '}') {
        if (depth === 0) throw new CorefileError(token.line, 'a } that nothing opened; it must begin its own line')
        depth -= 1
      } else if (token.text === 'import' && this.#firstOfLine()) {
        this.#importPattern()
        this.#at -= 1
      }
    }
    return { name: name.text, tokens: this.#tokens.slice(from, this.#at) }
  }
}

function quote(text: string): string {
  return JSON.stringify(text.length > 60 ? `${text.slice(0, 60)}…` : text)
}
