/**
 * Writes to the user's folder for `sealane export` and `unexport`: one object per file, written and removed as a whole.
 */
import { readFileSync, readdirSync, unlinkSync } from 'node:fs'
import { join } from 'node:path'
import type { Kind, KubeObject } from '../../../model/model.ts'
import { messageOf } from '../../../runtime/runtime.ts'
import { checkAddress, keyOf, objectKey, objectTitle } from '../../driver/driver.ts'
import { formatYaml } from '../../kubeapi.ts'
import { isMissing, writeFileAtomic } from '../atomic-write.ts'
import { type ParsedObject, parseObjects } from './parse-objects.ts'

export class UserObjectError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options)
    this.name = 'UserObjectError'
  }
}

export interface UserObjectPlace {
  readonly path: string
  readonly line: number
  /** Whether the file contains nothing else. */
  readonly alone: boolean
}

/** Returns a name such as `serviceexport-shop-web.yaml`; cluster-scoped kinds have no namespace in it. */
export function userObjectFileName(kind: Kind, name: string, namespace?: string): string {
  return `${[kind.toLowerCase(), ...(namespace === undefined ? [] : [namespace]), name].join('-')}.yaml`
}

/**
 * Writes the object to a file of its own and returns the path. If a file already contains the object and nothing else,
 * it replaces that file. Throws UserObjectError if other content would be lost, ClusterApiError Invalid for an invalid
 * name.
 */
export async function writeUserObject(folder: string, object: KubeObject): Promise<string> {
  const { kind, metadata } = object
  checkAddress(kind, metadata.name, metadata.namespace)
  const present = findUserObject(folder, kind, metadata.name, metadata.namespace)
  const path = present?.path ?? join(folder, userObjectFileName(kind, metadata.name, metadata.namespace))
  if (present === undefined ? readText(path) !== undefined : !present.alone) {
    throw new UserObjectError(`${path} has other content and is not overwritten; add ${titleOf(object)} to it by hand`)
  }
  try {
    await writeFileAtomic(path, formatYaml(object))
  } catch (error) {
    throw new UserObjectError(`cannot write ${path}: ${messageOf(error)}`, {
      cause: error,
    })
  }
  return path
}

/**
 * Removes the file that contains only this object and returns its path; undefined if no file contains the object.
 * Throws UserObjectError with the file and line to edit if the file contains other objects.
 */
export function removeUserObject(folder: string, kind: Kind, name: string, namespace?: string): string | undefined {
  checkAddress(kind, name, namespace)
  const place = findUserObject(folder, kind, name, namespace)
  if (place === undefined) return undefined
  if (!place.alone) {
    const title = objectTitle(kind, name, namespace)
    throw new UserObjectError(
      `${title} shares ${place.path} with other objects; remove it there by hand, at line ${place.line}`,
    )
  }
  try {
    unlinkSync(place.path)
  } catch (error) {
    throw new UserObjectError(`cannot remove ${place.path}: ${messageOf(error)}`, { cause: error })
  }
  return place.path
}

/** Returns the first file, in order of paths, that contains the object. Invalid files are skipped. */
export function findUserObject(
  folder: string,
  kind: Kind,
  name: string,
  namespace?: string,
): UserObjectPlace | undefined {
  const key = objectKey(name, namespace)
  for (const path of yamlFiles(folder)) {
    const text = readText(path)
    // Most files do not contain the name at all; this avoids parsing them.
    if (text === undefined || !text.includes(name)) continue
    const result = parseObjects(path, text)
    if ('problems' in result) continue
    const { objects, ignored } = result.file
    const found = objects.find((item: ParsedObject) => item.kind === kind && keyOf(item.object) === key)
    if (found !== undefined) return { path, line: found.line, alone: objects.length === 1 && ignored === 0 }
  }
  return undefined
}

/**
 * The paths of the YAML and JSON files below the folder, sorted; none if it does not exist. Names that begin with a dot
 * are left out. Throws UserObjectError.
 */
export function yamlFiles(folder: string): string[] {
  try {
    const entries = readdirSync(folder, { withFileTypes: true }).filter(({ name }) => !name.startsWith('.'))
    const files = entries.filter((entry) => !entry.isDirectory() && /\.(ya?ml|json)$/.test(entry.name))
    const folders = entries.filter((entry) => entry.isDirectory())
    return [
      ...files.map(({ name }) => join(folder, name)),
      ...folders.flatMap(({ name }) => yamlFiles(join(folder, name))),
    ].sort()
  } catch (error) {
    if (isMissing(error)) return []
    throw new UserObjectError(`cannot read ${folder}: ${messageOf(error)}`, {
      cause: error,
    })
  }
}

function readText(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return undefined
  }
}

function titleOf({ kind, metadata }: KubeObject): string {
  return objectTitle(kind, metadata.name, metadata.namespace)
}
