/**
 * Parses a Corefile into its top-level items: server blocks, snippets and imports, each with its position in the text.
 * The grammar is that of github.com/coredns/caddy, caddyfile/parse.go, without the constructs that cannot be edited
 * safely: blocks without braces, names without a block, and a missing last brace, which CoreDNS accepts.
 */

/**
 * A word of a Corefile with its position. The text is split exactly as CoreDNS does it (github.com/coredns/caddy,
 * caddyfile/lexer.go), including its oddities: `#` also starts a comment inside a word, and such a comment may end with
 * the word.
 */

export interface Token {
  readonly text: string
  /** The line in which the word starts, counted from 1. */
  readonly line: number
  /** The line in which the word ends. It differs for quoted words with line breaks. */
  readonly lastLine: number
  /** Offsets in the text. `end` is after the last character, quotes included. */
  readonly start: number
  readonly end: number
}

/** A comment that does not directly follow a word. */
interface Comment {
  /** Without the `#` and the surrounding space. */
  readonly text: string
  readonly line: number
  readonly start: number
  /** Only space precedes it in its line. */
  readonly alone: boolean
}

/** The Corefile has an error, or contains a construct that an edit could break. The message names no file. */
export class CorefileError extends Error {
  readonly line: number
  constructor(line: number, message: string) {
    super(`line ${line}: ${message}`)
    this.name = 'CorefileError'
    this.line = line
  }
}

// The characters for which Go's unicode.IsSpace is true, which differ from those of \s.
const SPACE = /[\t\n\v\f\r \u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]/

/** Throws CorefileError for a quote that is not closed. */
function tokenize(text: string): { readonly tokens: readonly Token[]; readonly comments: readonly Comment[] } {
  return new Lexer(text).run()
}

class Lexer {
  readonly #text: string
  readonly #tokens: Token[] = []
  readonly #comments: Comment[] = []
  #line = 1
  #word = ''
  #wordLine = 1
  #wordStart = 0
  #inComment = false

  constructor(text: string) {
    this.#text = text
  }

  run(): { readonly tokens: readonly Token[]; readonly comments: readonly Comment[] } {
    // A byte order mark is not part of the first word.
    let at = this.#text.startsWith('\uFEFF') ? 1 : 0
    while (at < this.#text.length) at = this.#take(at)
    if (this.#word !== '') this.#endWord(this.#text.length)
    return { tokens: this.#tokens, comments: this.#comments }
  }

  /** Consumes the character at `at`, or a whole quoted word, and returns the next position. */
  #take(at: number): number {
    const character = this.#text[at] ?? ''
    if (SPACE.test(character)) {
      this.#space(character, at)
      return at + 1
    }
    if (character === '#' && !this.#inComment) this.#beginComment(at)
    if (this.#inComment) return at + 1
    if (this.#word === '') {
      this.#wordLine = this.#line
      this.#wordStart = at
      if (character === '"') return this.#quoted(at)
    }
    this.#word += character
    return at + 1
  }

  #space(character: string, at: number): void {
    if (character === '\r') return
    if (this.#word !== '') this.#endWord(at)
    if (character !== '\n') return
    this.#line += 1
    this.#inComment = false
  }

  #endWord(end: number): void {
    this.#push(this.#word, end)
    this.#word = ''
    // In CoreDNS the end of a word also ends the comment state.
    this.#inComment = false
  }

  #push(text: string, end: number): void {
    const lastLine = this.#wordLine + (text.split('\n').length - 1)
    this.#tokens.push({ text, line: this.#wordLine, lastLine, start: this.#wordStart, end })
  }

  #beginComment(at: number): void {
    this.#inComment = true
    if (this.#word !== '') return
    const newline = this.#text.indexOf('\n', at)
    const text = this.#text.slice(at + 1, newline === -1 ? undefined : newline).trim()
    const before = this.#text.slice(this.#text.lastIndexOf('\n', at - 1) + 1, at)
    this.#comments.push({ text, line: this.#line, start: at, alone: before.trim() === '' })
  }

  /** Consumes a quoted word, whose opening quote is at `at`. Only quotes can be escaped. */
  #quoted(at: number): number {
    let word = ''
    for (let here = at + 1; here < this.#text.length; here += 1) {
      const character = this.#text[here] ?? ''
      if (character === '"') {
        this.#push(word, here + 1)
        return here + 1
      }
      const escaped = character === '\\' ? this.#text[here + 1] : undefined
      if (escaped !== undefined) here += 1
      if (character === '\n' || escaped === '\n') this.#line += 1
      word += escaped === '"' ? '"' : character + (escaped ?? '')
    }
    throw new CorefileError(this.#wordLine, 'a quoted word begins here and does not end')
  }
}

export interface Directive {
  readonly name: string
  /** The name and all tokens that belong to it, braces included. */
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

/** Throws CorefileError for anything that it cannot parse, and no other error. */
export function parseCorefile(text: string): Corefile {
  const { tokens, comments } = tokenize(text)
  return { items: new Parser(tokens).items(), comments }
}

/**
 * The plugins in the body of a snippet, as a server block that imports it gets them. Throws CorefileError if the body
 * cannot be parsed as plugins.
 */
export function directivesOf(body: readonly Token[]): readonly Directive[] {
  return new Parser(body).body()
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

  /** True if the current word is the first one of its line. */
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

  /** Parses `import PATTERN` from the word `import` on, and moves the cursor after it. */
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
   * Parses the names before a block, including the opening brace, which may be in the next line. After a comma the
   * names may continue in the next line.
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

  /** Parses all tokens up to the closing brace of a snippet, without the brace. */
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

  /** Parses the plugins of a server block and its closing brace. */
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
      directives.push(this.#directiveOrImport(token))
    }
  }

  /** Parses all tokens as plugins. */
  body(): Directive[] {
    const directives: Directive[] = []
    for (let token = this.#token(); token !== undefined; token = this.#token()) {
      directives.push(this.#directiveOrImport(token))
    }
    return directives
  }

  #directiveOrImport(token: Token): Directive {
    if (token.text !== 'import') return this.#directive(token)
    const from = this.#at
    this.#importPattern()
    return { name: 'import', tokens: this.#tokens.slice(from, this.#at) }
  }

  /** Parses one plugin, which ends with its line or with the braces that it opens. */
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
