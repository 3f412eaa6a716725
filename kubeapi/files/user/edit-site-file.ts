/** Changes what a site file exposes, for `sealane join --expose`. The rest of the file stays, with its comments. */
import { isDeepStrictEqual } from 'node:util'
import { LineCounter } from 'yaml'
import type { Exposure } from '../../../model/access/access.ts'
import { parseDocuments } from '../../kubeapi.ts'
import { writeFileAtomic } from '../atomic-write.ts'
import { parseSiteDocument, readSiteText } from '../site-file.ts'
import { UserObjectError } from './user-objects.ts'

/** Throws UserObjectError if the file cannot be changed without changing more, and if it cannot be written. */
export async function changeSiteExposure(path: string, exposure: Exposure): Promise<void> {
  const text = await readSiteText(path)
  const changed = textExposing(path, text, exposure)
  if (changed === undefined) throw new UserObjectError('its form allows no change without changing more')
  if (changed !== text) await writeFileAtomic(path, changed)
}

/** The text with the exposure. Undefined if that cannot be stated without changing anything else. Pure. */
export function textExposing(path: string, text: string, exposure: Exposure): string | undefined {
  const before = parseSiteDocument(path, text)
  if (before.config === undefined) return undefined
  if (before.config.exposure === exposure) return text
  const wanted = { ...before.config, exposure }
  const isWanted = (changed: string | undefined): changed is string =>
    changed !== undefined && isDeepStrictEqual(parseSiteDocument(path, changed).config, wanted)
  const line = withLine(text, exposure)
  if (isWanted(line)) return line
  const whole = withField(text, exposure)
  return isWanted(whole) ? whole : undefined
}

/** Changes or adds one line, as a person would, where `spec` is a block of lines. */
function withLine(text: string, exposure: Exposure): string | undefined {
  const stated = /^( +exposure:[ \t]+)\w+/m
  if (stated.test(text)) return text.replace(stated, `$1${exposure}`)
  const start = /^spec:[ \t]*(?:#.*)?(?:\r?\n)(?:[ \t]*(?:#.*)?\r?\n)*( +)(?=\S)/m.exec(text)
  const [block = '', indent = ''] = start ?? []
  if (start === null) return undefined
  const at = start.index + block.length - indent.length
  return `${text.slice(0, at)}${indent}exposure: ${exposure}\n${text.slice(at)}`
}

/** Formats the whole document, for instance one in braces. */
function withField(text: string, exposure: Exposure): string | undefined {
  try {
    const [document, ...more] = parseDocuments(text, { lineCounter: new LineCounter() })
    if (document === undefined || more.length > 0) return undefined
    document.setIn(['spec', 'exposure'], exposure)
    return document.toString({ lineWidth: 0 })
  } catch {
    // Aliases, and parts that are no maps.
    return undefined
  }
}
