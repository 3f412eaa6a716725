/** Values in a text that have the name of a secret before them: where each ends, in whatever notation. Pure. */

const WORDS =
  'passwords?|passwd|passphrase|passcode|(?<![a-z])(?:pass|pwd|pw|sig)(?![a-z])|secret|token|(?<![a-z])auths?(?![a-z])|cookie|api[-_]?key|access[-_]?key|account[-_]?key|shared[-_]?key|psk|private[-_]?key|signing[-_]?key|signature|encryption[-_]?key|(?:tls|ssh|ca|client|server)[-_.]key|key[-_]data|credentials?|authorization|bearer'
const SENSITIVE = new RegExp(WORDS, 'i')
/** They say where a secret is, or how many there are. */
const PLACE = /(files?|names?|ref|path|count|total|ttl|seconds|id|kind|type|policy)$/i

/** Of what stands in brackets. What goes on longer is no value: all of it goes. */
const MOST = 8192

/** `"password": `, `db-pass=`, and the same in texts that are escaped. */
const NAME = new RegExp(`([\\w.-]{0,40}(?:${WORDS})[\\w.-]{0,40})(?:\\\\{0,7}["'])?\\s{0,3}[:=][ \\t]{0,8}`, 'gi')
const FLAG = new RegExp(
  `(--?[\\w-]{0,40}(?:${WORDS})[\\w-]{0,40})(\\s{1,3})(?:(\\\\{0,7}["'])(.{0,${MOST}}?)\\3|([^\\s"'\\\\-][^\\s"']*))`,
  'gi',
)
/** `the token x was refused`: by its characters it is no word, and no name of Kubernetes. */
const SPOKEN = new RegExp(
  `((?:${WORDS})["']?\\s{1,3}(?:is\\s|was\\s|by\\s)?["']?)(?=[^\\s"',;]*[a-z])(?=[^\\s"',;]*[A-Z])(?=[^\\s"',;]*\\d)([^\\s"',;]{6,})`,
  'gi',
)
/** What follows these has parts of its own. */
const WHOLE_LINE = /authorization|cookie/i
const PLAIN = /^(true|false|null|[\d.]{1,6}|<redacted(-key-\d+)?>|<left out>|\$\(\w+\))$/

/** Whether what has this name is a secret. */
export function isSensitive(key: string): boolean {
  return SENSITIVE.test(key) && !PLACE.test(key)
}

/** Whether a name says that it is about a secret, and where that is. */
export function isPlace(key: string): boolean {
  return PLACE.test(key)
}

/** The text with each such value as `gone` gives it. */
export function hideNamed(text: string, gone: (value: string) => string): string {
  let out = ''
  let done = 0
  let lineEnd = -1
  for (const { 0: all, 1: key = '', index } of text.matchAll(NAME)) {
    const start = index + all.length
    if (index < done || !isSensitive(key)) continue
    // Once for each line: all may be one.
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
      // The flag i makes of each letter both: what it found is looked at again.
      /[a-z]/.test(value) && /[A-Z]/.test(value) && !value.includes('<redacted') ? `${before}${gone(value)}` : whole,
    )
}

interface Extent {
  readonly from: number
  readonly to: number
}

interface Named {
  /** Where the name begins, and the value. */
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

/** A quote with as many backslashes as the first one; with none, what is escaped does not end it. */
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

/** Lines that are further in than the name's, and items of a list at the same place. */
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

/** A character that may end a value does so before a space, another of its kind, and a name with a value. */
function bareEnd(line: string): number {
  return /[,;}\]"'&]+(?=\s|$|[\w.-]+[=:])|\\+["'n]/.exec(line)?.index ?? line.length
}
