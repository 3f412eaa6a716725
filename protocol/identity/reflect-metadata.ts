/**
 * Defines the three metadata functions that tsyringe, a dependency of @peculiar/x509, expects on Reflect when it loads.
 * Sealane uses no decorators, so this small store replaces a polyfill package. Import it before @peculiar/x509.
 * Existing functions are not replaced.
 */
interface MetadataReflect {
  getMetadata?: (key: unknown, target: object) => unknown
  getOwnMetadata?: (key: unknown, target: object) => unknown
  defineMetadata?: (key: unknown, value: unknown, target: object) => void
}

const store = new WeakMap<object, Map<unknown, unknown>>()
const reflect = Reflect as MetadataReflect

if (reflect.getMetadata === undefined) {
  reflect.getOwnMetadata = (key, target) => store.get(target)?.get(key)
  reflect.getMetadata = (key, target) => {
    for (let at: object | null = target; at !== null; at = Object.getPrototypeOf(at) as object | null) {
      const found = store.get(at)
      if (found?.has(key) === true) return found.get(key)
    }
    return undefined
  }
  reflect.defineMetadata = (key, value, target) => {
    const own = store.get(target) ?? new Map<unknown, unknown>()
    store.set(target, own.set(key, value))
  }
}
