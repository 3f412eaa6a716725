/**
 * The words of a Corefile, cut exactly as CoreDNS cuts them (github.com/coredns/caddy, caddyfile/lexer.go), each with
 * its place in the text. Oddities are kept: `#` also begins a comment inside a word, and only a word may end it there.
 */

export interface Token {
  readonly text: string
  /** From 1, where the word begins. */
  readonly line: number
  /** The line after the word: differs for quoted words with line breaks. */
  readonly lastLine: number
  /** Offsets into the text; `end` is behind the last character, quotes included. */
  readonly start: number
  readonly end: number
}

/** A comment that follows no word directly. */
export interface Comment {
  /** Without the `#` and the space around. */
  readonly text: string
  readonly line: number
  readonly start: number
  /** Nothing but space is before it on its line. */
  readonly alone: boolean
}

/** What CoreDNS could not read either, or reads in a way that an edit could change. The message names no file. */
export class CorefileError extends Error {
  readonly line: number
  constructor(line: number, message: string) {
    super(`line ${line}: ${message}`)
    this.name = 'CorefileError'
    this.line = line
  }
}

// What Go's unicode.IsSpace takes for space: not the same set as \s.
const SPACE = /[\t\n\v\f\r \u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]/

/** Throws CorefileError for a quote that does not end. */
export function tokenize(text: string): { readonly tokens: readonly Token[]; readonly comments: readonly Comment[] } {
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
    // A byte order mark is no part of the first word.
    let at = this.#text.startsWith('\uFEFF') ? 1 : 0
    while (at < this.#text.length) at = this.#take(at)
    if (this.#word !== '') this.#endWord(this.#text.length)
    return { tokens: this.#tokens, comments: this.#comments }
  }

  /** Takes the character at `at`, or a whole quoted word, and gives where to go on. */
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
    // CoreDNS forgets that it was in a comment when a word ends.
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

  /** From the opening quote at `at`. Only quotes can be escaped. */
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
