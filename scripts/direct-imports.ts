/**
 * Copies sources for the bundler so that they import names from the files that declare them, not from the face of a
 * room: a bundler that splits takes all that a face names along with whoever imports the face, and a start would load
 * most of the product (decision 89).
 */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join, normalize, relative } from 'node:path'

/** A list of names in braces, from a file beside. As Prettier writes it. */
const NAMES_FROM = /^(import|export)( type)? \{([^}]*)\} from '(\.[^']+\.ts)'$/gm
const ANY_FROM = /(?:\sfrom |^import |import\(\s*)'(\.[^']+\.ts)'/gm

/**
 * Writes into `folder` all files of `root` that `entry` (a path from the root) reaches by imports, under the same paths.
 * `finish` gets each text last. Throws the system's error, and an Error for a face that renames what it gives.
 */
export function copyWithDirectImports(
  root: string,
  entry: string,
  folder: string,
  finish: (text: string) => string = (text) => text,
): void {
  const texts = new Map<string, string>()
  const read = (path: string): string => {
    const known = texts.get(path) ?? readFileSync(join(root, path), 'utf8')
    texts.set(path, known)
    return known
  }
  const reached = new Set([entry])
  for (const path of reached) {
    const text = withDirectImports(path, read(path), read)
    mkdirSync(dirname(join(folder, path)), { recursive: true })
    writeFileSync(join(folder, path), finish(text))
    for (const [, name = ''] of text.matchAll(ANY_FROM)) {
      const target = targetOf(path, name)
      if (existsSync(join(root, target))) reached.add(target)
    }
  }
}

/** The text of the file `path`, with its imports from faces replaced. Lines keep their numbers. */
export function withDirectImports(path: string, text: string, read: (path: string) => string): string {
  return text.replace(NAMES_FROM, (whole: string, keyword: string, type = '', names: string, from: string) => {
    // What a face gives is what it is for.
    if (keyword === 'export') return whole
    const homes = new Map<string, string[]>()
    for (const name of listed(names)) {
      const home = homeOf(targetOf(path, from), importedName(name), read)
      homes.set(home, [...(homes.get(home) ?? []), name])
    }
    if (homes.size === 1 && homes.has(targetOf(path, from))) return whole
    const lines = [...homes].map(([home, list]) => {
      // A list of types alone must not load the file.
      const isTypes = list.every((name) => name.startsWith('type '))
      const bare = isTypes ? list.map((name) => name.slice('type '.length)) : list
      return `import${isTypes ? ' type' : type} { ${bare.join(', ')} } from '${nameFrom(path, home)}'`
    })
    return lines.join('; ') + '\n'.repeat(whole.split('\n').length - 1)
  })
}

/** The file that declares what `path` exports as `name`. */
function homeOf(path: string, name: string, read: (path: string) => string): string {
  for (const [, keyword, , names = '', from = ''] of read(path).matchAll(NAMES_FROM)) {
    if (keyword === 'export' && names.includes(' as '))
      throw new Error(`${path} gives a name as another one: not understood`)
    if (keyword === 'export' && listed(names).some((one) => importedName(one) === name))
      return homeOf(targetOf(path, from), name, read)
  }
  return path
}

function listed(names: string): string[] {
  const all = names.split(',').map((name) => name.trim().replace(/\s+/g, ' '))
  return all.filter((name) => name !== '')
}

/** Of `type A as B`: A. */
function importedName(name: string): string {
  return name.replace(/^type /, '').replace(/ as .*$/, '')
}

function targetOf(path: string, name: string): string {
  return normalize(join(dirname(path), name))
}

function nameFrom(path: string, target: string): string {
  const name = relative(dirname(path), target)
  return name.startsWith('.') ? name : `./${name}`
}
