//! Settings that are restored when their holder is dropped.

use std::sync::Arc;

use netplumb_sys::netns::Namespace;

use crate::error::KnobError;
use crate::journal::Journal;
use crate::setting::Setting;

/// Changes in a namespace. Restored when dropped, the last change first. With a journal, it keeps
/// what can't be restored; without, the namespace is temporary anyway.
#[derive(Debug)]
pub struct Applied {
    namespace: Namespace,
    journal: Option<Arc<Journal>>,
    changed: Vec<Changed>,
}

/// A change to undo.
#[derive(Debug)]
struct Changed {
    number: Option<u32>,
    setting: Setting,
    before: String,
    after: Option<String>,
}

/// The result of restoring a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Put {
    /// It was restored.
    Back,
    /// It had the previous value already.
    Unchanged,
    /// Its object is gone.
    Gone,
}

/// Equal, except for spaces.
fn same(a: &str, b: &str) -> bool {
    a.split_whitespace().eq(b.split_whitespace())
}

/// Restore a setting, unless it was changed by others since.
pub(crate) fn put_back(
    namespace: &Namespace,
    setting: &Setting,
    before: &str,
    after: Option<&str>,
) -> Result<Put, KnobError> {
    let now = match setting.read(namespace) {
        Err(KnobError::Gone { .. } | KnobError::Missing { .. }) => return Ok(Put::Gone),
        other => other?,
    };
    if same(&now, before) {
        return Ok(Put::Unchanged);
    }
    if after.is_some_and(|after| !same(&now, after)) {
        return Err(KnobError::Changed { what: setting.whose(), before: before.into(), now });
    }
    setting.write(namespace, before)?;
    let back = setting.read(namespace)?;
    match same(&back, before) {
        true => Ok(Put::Back),
        false => {
            Err(KnobError::ReadsBack { what: setting.whose(), asked: before.into(), found: back })
        }
    }
}

impl Applied {
    /// An empty list of changes, to apply in a namespace.
    pub fn new(namespace: Namespace, journal: Option<Arc<Journal>>) -> Applied {
        Applied { namespace, journal, changed: Vec::new() }
    }

    /// The namespace that settings are applied in.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// The journal, on interfaces of this machine.
    pub fn journal(&self) -> Option<&Arc<Journal>> {
        self.journal.as_ref()
    }

    /// Apply a setting, and read it back; returns whether that was a change.
    ///
    /// # Errors
    /// It can't be set, reads back as something else, or was not announced; it is unchanged then.
    pub fn set(&mut self, setting: Setting, to: &str) -> Result<bool, KnobError> {
        let namespace = self.namespace.try_clone().map(Namespace::from);
        let namespace = namespace.map_err(KnobError::system("open a network namespace"))?;
        let writes = setting.clone();
        self.make(setting, to, || writes.write(&namespace, to))
    }

    /// The same, with `make` to apply it.
    ///
    /// # Errors
    /// As [`set`](Self::set), and those of `make`.
    pub fn make<E: From<KnobError>>(
        &mut self,
        setting: Setting,
        to: &str,
        make: impl FnOnce() -> Result<(), E>,
    ) -> Result<bool, E> {
        let before = setting.read(&self.namespace)?;
        if same(&before, to) {
            return Ok(false);
        }
        for other in setting.change_with_it(&self.namespace) {
            self.keep(other)?;
        }
        self.remember(setting.clone(), before, Some(to.into()))?;
        let found = make().and_then(|()| Ok(setting.read(&self.namespace)?));
        match found {
            Ok(found) if same(&found, to) => Ok(true),
            other => {
                // The value that it has now was not set by others.
                if let (Ok(found), Some(last)) = (&other, self.changed.last_mut()) {
                    last.after = Some(found.clone());
                }
                self.undo_last();
                Err(match other {
                    Err(error) => error,
                    Ok(found) => {
                        KnobError::ReadsBack { what: setting.whose(), asked: to.into(), found }
                            .into()
                    }
                })
            }
        }
    }

    /// Restore the current value at the end, even if other changes affect it.
    ///
    /// # Errors
    /// It can't be read, or not be written to the journal.
    pub fn keep(&mut self, setting: Setting) -> Result<(), KnobError> {
        let before = setting.read(&self.namespace)?;
        self.remember(setting, before, None)
    }

    fn remember(
        &mut self,
        setting: Setting,
        before: String,
        after: Option<String>,
    ) -> Result<(), KnobError> {
        let number = match &self.journal {
            Some(journal) => Some(journal.note(&setting, &before, after.as_deref())?),
            None => None,
        };
        self.changed.push(Changed { number, setting, before, after });
        Ok(())
    }

    /// Restore the last change; false if there is none.
    fn undo_last(&mut self) -> bool {
        let Some(last) = self.changed.pop() else {
            return false;
        };
        let (before, after) = (&last.before, last.after.as_deref());
        let put = put_back(&self.namespace, &last.setting, before, after);
        if let (Some(journal), Some(number)) = (&self.journal, last.number) {
            match put {
                Ok(_) => journal.done(number),
                // It was changed by others.
                Err(error @ KnobError::Changed { .. }) => {
                    journal.failed(error.to_string());
                    journal.done(number);
                }
                Err(error) => journal.failed(error.to_string()),
            }
        }
        true
    }
}

impl Drop for Applied {
    fn drop(&mut self) {
        while self.undo_last() {}
    }
}
