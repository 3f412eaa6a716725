/** Compares the rights that a command asks for by access reviews with those that its requests take. */
import type { Test } from 'tap'
import type { MemoryAdmin } from './memory-admin.ts'

interface Review {
  readonly verb: string
  readonly resource: string
  readonly subresource: string
  readonly namespace: string
}

/** The rights that were asked for, as `delete deployments in sealane-system`, and how many writes came before. */
export class Reviews {
  readonly asked = new Set<string>()
  lateBy = 0

  watch(admin: MemoryAdmin): void {
    const create = admin.create.bind(admin)
    admin.create = (object) => {
      if (object.kind === 'SelfSubjectAccessReview') {
        const { resourceAttributes } = object['spec'] as { resourceAttributes: Review }
        const { verb, resource, subresource, namespace } = resourceAttributes
        const what = subresource === '' ? resource : `${resource}/${subresource}`
        this.asked.add(`${verb} ${what} in ${namespace}`)
        this.lateBy = Math.max(this.lateBy, written(admin).length)
      }
      return create(object)
    }
  }
}

const VERBS: Readonly<Record<string, readonly string[]>> = {
  apply: ['create', 'patch'],
  merge: ['patch'],
  remove: ['delete'],
  create: ['create'],
  // The tests have the objects that are replaced.
  replace: ['update'],
}

export function written({ done }: MemoryAdmin): readonly string[] {
  return done.filter((line) => !line.endsWith('(dry)'))
}

/** Each write and command of `done`, such as `remove Service sealane-system/sealane-console`, as the rights that it takes. */
export function used(admin: MemoryAdmin): readonly string[] {
  const all = written(admin).flatMap((line) => {
    const [what = '', kind = '', title = ''] = line.split(' ')
    if (what === 'exec') return ['get', 'create'].map((verb) => `${verb} pods/exec in ${kind.split('/', 1)[0] ?? ''}`)
    // The real one sends nothing about a kind that the server does not know.
    if (admin.unknown.has(kind)) return []
    const namespace = title.includes('/') ? title.split('/', 1)[0] : ''
    const name = kind.toLowerCase()
    const resource = name.endsWith('s') ? name : `${name}s`.replace(/([^aeiou])ys$/, '$1ies')
    return (VERBS[what] ?? [what]).map((verb) => `${verb} ${resource} in ${namespace}`)
  })
  return [...new Set(all)].sort()
}

export function allAsked(t: Test, admin: MemoryAdmin, { asked, lateBy }: Reviews): void {
  t.same(
    used(admin).filter((right) => !asked.has(right)),
    [],
  )
  t.equal(lateBy, 0, 'nothing was written before')
}
