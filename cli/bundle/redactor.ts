/**
 * Redacts secrets in a bundle, as a second safeguard after the lists of allowed fields. By structure: fields with the
 * name of a secret, variables of containers and the data of Secrets. By pattern, in every text. A secret that was found
 * once is finally redacted everywhere, also in base64. Pure.
 */
import { Buffer } from 'node:buffer'

/** Finds values that follow the name of a secret in a text, and where each ends, in several notations. Pure. */

const WORDS =
  'passwords?|passwd|passphrase|passcode|(?<![a-z])(?:pass|pwd|pw|sig)(?![a-z])|secret|token|(?<![a-z])auths?(?![a-z])|cookie|api[-_]?key|access[-_]?key|account[-_]?key|shared[-_]?key|psk|private[-_]?key|signing[-_]?key|signature|encryption[-_]?key|(?:tls|ssh|ca|client|server)[-_.]key|key[-_]data|credentials?|authorization|bearer'
const SENSITIVE = new RegExp(WORDS, 'i')
/** Names with these endings hold the location or number of secrets. */
const PLACE = /(files?|names?|ref|path|count|total|ttl|seconds|id|kind|type|policy)$/i

/**
 * The maximum length of a value in brackets. If there is no closing bracket within it, the rest of the text is
 * redacted.
 */
const MOST = 8192

/** `"password": `, `db-pass=`, and the same in escaped texts. */
const NAME = new RegExp(`([\\w.-]{0,40}(?:${WORDS})[\\w.-]{0,40})(?:\\\\{0,7}["'])?\\s{0,3}[:=][ \\t]{0,8}`, 'gi')
const FLAG = new RegExp(
  `(--?[\\w-]{0,40}(?:${WORDS})[\\w-]{0,40})(\\s{1,3})(?:(\\\\{0,7}["'])(.{0,${MOST}}?)\\3|([^\\s"'\\\\-][^\\s"']*))`,
  'gi',
)
/** `the token x was refused`: the characters of the value show that it is neither a word nor a name in Kubernetes. */
const SPOKEN = new RegExp(
  `((?:${WORDS})["']?\\s{1,3}(?:is\\s|was\\s|by\\s)?["']?)(?=[^\\s"',;]*[a-z])(?=[^\\s"',;]*[A-Z])(?=[^\\s"',;]*\\d)([^\\s"',;]{6,})`,
  'gi',
)
/** The values of these headers have several parts, so the whole line is redacted. */
const WHOLE_LINE = /authorization|cookie/i
const PLAIN = /^(true|false|null|[\d.]{1,6}|<redacted(-key-\d+)?>|<left out>|\$\(\w+\))$/

/** True if a field or flag with this name holds a secret. */
function isSensitive(key: string): boolean {
  return SENSITIVE.test(key) && !PLACE.test(key)
}

/** True if a name with the word for a secret says where the secret is. */
function isPlace(key: string): boolean {
  return PLACE.test(key)
}

/** Replaces each such value by the result of `gone`. */
function hideNamed(text: string, gone: (value: string) => string): string {
  let out = ''
  let done = 0
  let lineEnd = -1
  for (const { 0: all, 1: key = '', index } of text.matchAll(NAME)) {
    const start = index + all.length
    if (index < done || !isSensitive(key)) continue
    // Computed once for each line, because the whole text may be one line.
    if (lineEnd < start) lineEnd = endOfLine(text, start)
    const { from, to } = extent(text, { name: index, start, lineEnd, isWholeLine: WHOLE_LINE.test(key) })
    const value = text.slice(from, to)
    if (value.trim() === '' || PLAIN.test(value.trim())) continue
    out += text.slice(done, from) + gone(value)
    done = to
  }
  return (out + text.slice(done))
    .replace(FLAG, (whole: string, flag: string, gap: string, quote = '', quoted = '', bare = '') => {
      const value = `${quoted as string}${bare as string}`
      return isSensitive(flag) && !PLAIN.test(value)
        ? `${flag}${gap}${quote as string}${gone(value)}${quote as string}`
        : whole
    })
    .replace(SPOKEN, (whole: string, before: string, value: string) =>
      // The flag `i` makes each of the patterns `[a-z]` and `[A-Z]` match both cases, so the value is checked again.
      /[a-z]/.test(value) && /[A-Z]/.test(value) && !value.includes('<redacted') ? `${before}${gone(value)}` : whole,
    )
}

interface Extent {
  readonly from: number
  readonly to: number
}

interface Named {
  /** The offsets of the name and of the value. */
  readonly name: number
  readonly start: number
  readonly lineEnd: number
  readonly isWholeLine: boolean
}

function extent(text: string, { name, start, lineEnd, isWholeLine }: Named): Extent {
  const [, escapes = '', quote = ''] = /^(\\{0,7})(["'])/.exec(text.slice(start, start + 8)) ?? []
  if (quote !== '') {
    const from = start + escapes.length + 1
    return { from, to: closing(text, from, escapes.length, quote) ?? Math.max(from, lineEnd) }
  }
  if (/[[{]/.test(text.charAt(start))) return { from: start, to: balanced(text, start) }
  const line = text.slice(start, lineEnd)
  if (/^[|>]?[-+\d]?[ \t\r]*$/.test(line)) return { from: lineEnd, to: blockEnd(text, name, lineEnd) }
  return { from: start, to: isWholeLine ? lineEnd : start + bareEnd(line) }
}

/**
 * Finds a quote with as many backslashes as the opening one. Without backslashes, an escaped quote does not close the
 * value.
 */
function closing(text: string, from: number, escapes: number, quote: string): number | undefined {
  const before = escapes === 0 ? '(?<!\\\\)(?:\\\\\\\\)*' : `(?<!\\\\)\\\\{${escapes}}`
  const end = new RegExp(before + quote, 'g')
  end.lastIndex = from
  const found = end.exec(text)
  if (found === null) return undefined
  // An even number of backslashes belongs to the value.
  return found.index + (escapes === 0 ? found[0].length - 1 : 0)
}

function balanced(text: string, start: number): number {
  let depth = 0
  for (let at = start; at < text.length && at < start + MOST; at++) {
    const one = text.charAt(at)
    if (one === '{' || one === '[') depth++
    if ((one === '}' || one === ']') && --depth === 0) return at + 1
  }
  return text.length
}

function endOfLine(text: string, start: number): number {
  const end = text.indexOf('\n', start)
  return end < 0 ? text.length : end
}

/** The block includes lines with a larger indent than the name, and list items with the same indent. */
function blockEnd(text: string, name: number, lineEnd: number): number {
  const begin = text.lastIndexOf('\n', name - 1) + 1
  const indent = /^[ \t]*(?:- +)?/.exec(text.slice(begin, name))?.[0].length ?? 0
  let end = lineEnd
  while (end < text.length) {
    const next = endOfLine(text, end + 1)
    const line = text.slice(end + 1, next)
    const inward = /^[ \t]*/.exec(line)?.[0].length ?? 0
    if (line.trim() !== '' && inward <= indent && !(inward === indent && line.trim().startsWith('- '))) break
    end = next
  }
  return end
}

/** A separator ends the value only before a space, the end of the line, or a name with a value. */
function bareEnd(line: string): number {
  return /[,;}\]"'&]+(?=\s|$|[\w.-]+[=:])|\\+["'n]/.exec(line)?.index ?? line.length
}

/** The minimum length of a spelling. Shorter texts occur in many places by chance. */
const SHORTEST = 8

/**
 * The ways in which a secret may be written: unchanged, in JSON, in a URL, and within base64 at each of the three
 * alignments. Pure.
 */
export function spellingsOf(secret: string): readonly string[] {
  const encoded = [0, 1, 2].map((before) => insideBase64(secret, before))
  const urlSafe = encoded.map((text) => text.replaceAll('+', '-').replaceAll('/', '_'))
  const all = [secret, JSON.stringify(secret).slice(1, -1), inUrl(secret), ...encoded, ...urlSafe]
  return [...new Set(all)].filter((text) => text.length >= SHORTEST)
}

function inUrl(secret: string): string {
  // A lone surrogate cannot be encoded for a URL.
  return secret.isWellFormed() ? encodeURIComponent(secret) : secret
}

/**
 * The base64 characters that do not depend on the surrounding octets. `before` is the number of octets that precede the
 * secret.
 */
function insideBase64(secret: string, before: number): string {
  const octets = Buffer.concat([Buffer.alloc(before), Buffer.from(secret)])
  const text = octets.toString('base64').replaceAll('=', '')
  const first = [0, 2, 3][before] ?? 0
  const last = octets.length % 3 === 0 ? text.length : text.length - 1
  return text.slice(first, last)
}

const REDACTED = '<redacted>'

/**
 * PEM blocks of any type, also in one line with `\n`: a reader of the bundle needs no certificate, and the type may be
 * wrong.
 */
const PEM = /-----BEGIN [A-Z0-9 ]{0,40}-----[^]*?(?:-----END [A-Z0-9 ]{0,40}-----|$)/g
const JOIN_TOKEN = /sealane1\.[\w-]+/g
const WEB_TOKEN = /eyJ[\w-]{5,}\.[\w-]+\.[\w-]*/g
const LOGIN = /\b(Bearer|Basic)(\s{1,3})([\w.~+/=-]{4,})/gi
/** A user name before the password stays. A single word may be a token, so it is redacted. */
const URL_LOGIN = /(:\/\/(?:[^\s/@:"']{0,200}:)?)([^\s/@"']{1,500})@/g
/** Tokens and keys with a known prefix, and password hashes. */
const KNOWN_FORMS: readonly RegExp[] = [
  /\b(?:AKIA|ASIA)[A-Z0-9]{16}\b/g,
  /\bAIza[\w-]{30,}/g,
  /\b(?:gh[pousr]|github_pat|npm|(?:sk|rk|pk)_(?:live|test))_\w{10,}/g,
  /\bglpat-[\w-]{8,}/g,
  /\bxox[a-z]-[\w-]{8,}/g,
  /\bhv[sbr]\.[\w-]{16,}/g,
  /(?<=\bhooks\.slack\.com\/services\/|\/webhooks\/)[^\s"']+/g,
  /\$(?:apr1|[1-7y]|2[abxy]|argon2\w*)\$[^\s:"']+/g,
  /(?<=\bIDENTIFIED BY\s{1,3}['"])[^'"]+/gi,
  /(?<=(?:^|\s)(?:-u|--user)\s{1,3}[^\s:"']{1,100}:)[^\s"']+/g,
]
/** Digests of images and hashes of commits are not keys. */
const HEX = /(?<!sha\d{1,3}:)\b(0x[0-9a-f]{32,}|(?![0-9a-f]{40}\b)[0-9a-f]{32,})\b/gi
/** A JSON string, which may contain line breaks. */
const ESCAPED = /(?<!\\)"((?:\\.|[^"\\\n]){0,16384})"/g
const ENCODED = /[\w+/-]{16,}={0,2}/g

/** The lengths of encoded keys of 32 octets, such as WireGuard's. Longer runs are, or may be, other secrets. */
const KEY_LENGTHS = [43, 44, 64, 66]
const LONG_RUN = 40
/** The maximum depth of base64 within base64. */
const MOST_DEPTH = 3
const MOST_LEARNED = 100
const MOST_NUMBERED = 10_000

/** Maps whose names and values members choose. */
const FREE_MAPS: ReadonlySet<string> = new Set(['labels', 'annotations', 'exportedLabels', 'exportedAnnotations'])

/** Maps whose values selectors compare: equal ones stay equal, and others stay different. */
const COMPARED_MAPS: ReadonlySet<string> = new Set(['labels', 'properties', 'matchLabels', 'matchProperties'])
/** Maps of numbers by ids of clusters, which may have the name of a secret. */
const NUMBER_MAPS: ReadonlySet<string> = new Set(['weights'])

type Fields = Readonly<Record<string, unknown>>

export class Redactor {
  readonly #learned = new Set<string>()
  /** Equal keys get the same number, so that peers can be matched without showing the keys. */
  readonly #numbers = new Map<string, number>()

  /**
   * False inside maps that any member can write: a member could otherwise have ordinary words redacted from the whole
   * bundle.
   */
  #learns = true
  /**
   * True inside maps whose values selectors compare. These are labels and no secrets, and their words occur elsewhere,
   * so none of them is learned.
   */
  #compares = false
  /** True inside maps of numbers. */
  #counts = false

  /** Remembers a secret to redact it everywhere. */
  learn(secret: string): void {
    if (!this.#learns || this.#compares) return
    const isWorthKnowing = secret.length >= 8 && !/^([a-z][a-z.:/-]*|[\d.:]+|<redacted.*|\/.*)$/.test(secret)
    if (isWorthKnowing && this.#learned.size < MOST_LEARNED) this.#learned.add(secret)
  }

  text(text: string, depth = 0): string {
    const lines = text.replace(PEM, REDACTED).replace(ESCAPED, (quoted) => this.#unescaped(quoted, depth))
    const known = KNOWN_FORMS.reduce((rest, form) => rest.replace(form, (one) => this.#gone(one)), lines)
    const open = known
      .replace(JOIN_TOKEN, REDACTED)
      .replace(WEB_TOKEN, REDACTED)
      .replace(LOGIN, (_all, scheme: string, gap: string, value: string) => `${scheme}${gap}${this.#gone(value)}`)
      .replace(URL_LOGIN, (_all, before: string, value: string) => `${before}${this.#gone(value)}@`)
    return hideNamed(open, (value) => this.#gone(value))
      .replace(HEX, (run) => this.#hidden(run))
      .replace(ENCODED, (run) => this.#encoded(run, depth))
  }

  /** Redacts any JSON value. */
  value(value: unknown): unknown {
    if (typeof value === 'string') return this.text(value)
    if (Array.isArray(value)) return this.#list(value as readonly unknown[])
    if (typeof value !== 'object' || value === null) return value
    const fields = value as Fields
    const isSecret = fields['kind'] === 'Secret'
    const isNamed = typeof fields['name'] === 'string' && isSensitive(fields['name'])
    const { key: compared, operator } = fields
    const isExpression = typeof compared === 'string' && isSensitive(compared) && operator !== undefined
    const kept = Object.entries(fields).flatMap(([key, one]): [string, unknown][] => {
      if (key === 'managedFields') return []
      const hides = isSensitive(key) || (isNamed && key === 'value') || (isSecret && /^(data|stringData)$/.test(key))
      const name = this.text(key)
      if (key === 'env' && Array.isArray(one)) return [[name, this.#variables(one as readonly unknown[])]]
      const at = isExpression && key === 'values' ? 'matchLabels' : key
      return [[name, this.#inside(at, () => (hides || at !== key ? this.#leaves(one) : this.value(one)))]]
    })
    return Object.fromEntries(kept)
  }

  #inside<T>(key: string, look: () => T): T {
    const [learns, compares, counts] = [this.#learns, this.#compares, this.#counts]
    this.#learns = learns && !FREE_MAPS.has(key)
    this.#compares = compares || COMPARED_MAPS.has(key)
    this.#counts = counts || NUMBER_MAPS.has(key)
    try {
      return look()
    } finally {
      ;[this.#learns, this.#compares, this.#counts] = [learns, compares, counts]
    }
  }

  /** Call this last, for each text: redacts every remembered secret. */
  finish(text: string): string {
    return withoutAny(text, this.#spellings())
  }

  /** Like finish(), for any JSON value. Field names stay, because readers depend on them. */
  finishValue(value: unknown): unknown {
    const spellings = this.#spellings()
    const finished = (one: unknown): unknown => {
      if (typeof one === 'string') return withoutAny(one, spellings)
      if (Array.isArray(one)) return one.map(finished)
      if (typeof one !== 'object' || one === null) return one
      return Object.fromEntries(Object.entries(one).map(([key, item]) => [key, finished(item)]))
    }
    return finished(value)
  }

  /** The longest come first, because one spelling may contain another. */
  #spellings(): readonly string[] {
    return [...this.#learned].flatMap(spellingsOf).sort((a, b) => b.length - a.length)
  }

  #gone(secret: string): string {
    if (secret.includes('<redacted')) return REDACTED
    this.learn(secret)
    return this.#compares ? this.#numbered(secret) : REDACTED
  }

  /** The end of a value on several lines can only be found in the unescaped text. */
  #unescaped(quoted: string, depth: number): string {
    if (depth >= MOST_DEPTH || !quoted.includes('\\n')) return quoted
    try {
      const text = JSON.parse(quoted) as string
      const clean = this.text(text, depth + 1)
      return clean === text ? quoted : JSON.stringify(clean)
    } catch {
      return quoted
    }
  }

  #encoded(run: string, depth: number): string {
    const slashes = run.split('/').length - 1
    const isMixed = /[a-z]/.test(run) && /[A-Z]/.test(run) && /\d/.test(run)
    if (isMixed && run.length >= LONG_RUN && slashes * 8 < run.length) return this.#hidden(run)
    if (depth >= MOST_DEPTH) return run
    const decoded = Buffer.from(run, 'base64').toString('latin1')
    if (!/^[\t\n\r -~]+$/.test(decoded)) return run
    return this.text(decoded, depth + 1) === decoded ? run : REDACTED
  }

  #hidden(run: string): string {
    return this.#compares || KEY_LENGTHS.includes(run.length) ? this.#numbered(run) : REDACTED
  }

  #numbered(run: string): string {
    const known = this.#numbers.get(run)
    if (known !== undefined) return `<redacted-key-${known}>`
    if (this.#numbers.size >= MOST_NUMBERED) return REDACTED
    this.#numbers.set(run, this.#numbers.size + 1)
    return `<redacted-key-${this.#numbers.size}>`
  }

  /** In a command line the secret is the argument after the flag. */
  #list(items: readonly unknown[]): unknown[] {
    return items.map((item, index) => {
      const before = items[index - 1]
      const isAfterFlag = typeof before === 'string' && /^--?[\w-]+$/.test(before) && isSensitive(before)
      return isAfterFlag && typeof item === 'string' && !item.startsWith('-') ? this.#gone(item) : this.value(item)
    })
  }

  /** Only the names of a container's variables are kept. */
  #variables(items: readonly unknown[]): unknown[] {
    return items.map((item) => {
      if (typeof item !== 'object' || item === null || !('value' in item)) return this.value(item)
      const { name, value } = item as { readonly name?: unknown; readonly value: unknown }
      if (typeof name === 'string' && typeof value === 'string' && isSensitive(name)) this.learn(value)
      return { name: this.value(name), value: REDACTED }
    })
  }

  /** Redacts everything below the name of a secret. The structure stays, and no text does. */
  #leaves(value: unknown): unknown {
    if (typeof value === 'string') return this.#gone(value)
    if (Array.isArray(value)) return value.map((one) => this.#leaves(one))
    if (typeof value !== 'object' || value === null)
      return typeof value === 'number' && !this.#counts ? REDACTED : value
    return Object.fromEntries(
      Object.entries(value).map(([key, one]) => [this.text(key), isPlace(key) ? this.value(one) : this.#leaves(one)]),
    )
  }
}

function withoutAny(text: string, spellings: readonly string[]): string {
  let rest = text
  for (const spelling of spellings) if (rest.includes(spelling)) rest = rest.replaceAll(spelling, REDACTED)
  return rest
}
